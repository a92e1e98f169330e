// SPDX-License-Identifier: Apache-2.0
// LibTorch's operator threads, for work of ours.
#pragma once

#include <cstdint>
#include <functional>

namespace plimsoll::detail {

// Calls `body` with parts of [0, count) of at least `grain`, on as many of the calling thread's
// OpenMP workers as that makes, itself among them; returns when all have. One part where that
// thread is in a parallel region already, and on a forked child's first. at::parallel_for does it,
// but only in sources compiled for OpenMP: elsewhere it runs everything on the calling thread, and
// says nothing.
void on_operator_threads(std::int64_t count, std::int64_t grain,
                         const std::function<void(std::int64_t, std::int64_t)>& body);

}  // namespace plimsoll::detail
