// SPDX-License-Identifier: Apache-2.0
#include "operator_threads.h"

#include <pthread.h>

#include <atomic>

#include <ATen/Parallel.h>

namespace plimsoll::detail {
namespace {

// A forked child has no workers, and OpenMP does not know: it would wait for them for ever.
std::atomic<bool> g_is_forked{false};

bool has_workers() {
  static const int kRefused =
      pthread_atfork(nullptr, nullptr, [] { g_is_forked.store(true, std::memory_order_relaxed); });
  return kRefused == 0 && !g_is_forked.load(std::memory_order_relaxed);
}

}  // namespace

void on_operator_threads(std::int64_t count, std::int64_t grain,
                         const std::function<void(std::int64_t, std::int64_t)>& body) {
  if (has_workers())
    at::parallel_for(0, count, grain, body);
  else if (count > 0)
    body(0, count);
}

}  // namespace plimsoll::detail
