// SPDX-License-Identifier: Apache-2.0
#include "operator_threads.h"

#include <ATen/Parallel.h>

namespace plimsoll::detail {

void on_operator_threads(std::int64_t count, std::int64_t grain,
                         const std::function<void(std::int64_t, std::int64_t)>& body) {
  at::parallel_for(0, count, grain, body);
}

}  // namespace plimsoll::detail
