// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/capabilities.h"

#include <cstdint>
#include <mutex>
#include <set>
#include <thread>

#include <ATen/Parallel.h>

#include "plimsoll/base/error.h"

#include "operator_threads.h"
#include "pointer_checks.h"
#include "session_device.h"

namespace plimsoll {
namespace {

int count_copy_threads() {
  std::mutex mutex;
  std::set<std::thread::id> seen;
  detail::on_operator_threads(at::get_num_threads(), /*grain=*/1, [&](std::int64_t, std::int64_t) {
    const std::lock_guard lock(mutex);
    seen.insert(std::this_thread::get_id());
  });
  return static_cast<int>(seen.size());
}

std::string refusal_of(const c10::Device& device) {
  try {
    detail::with_index(device);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

Capabilities find_capabilities() {
  return {.operator_threads = at::get_num_threads(),
          .copy_threads = count_copy_threads(),
          .can_forbid_pointers = detail::can_forbid_pointers(),
          .cuda_refusal = refusal_of(c10::DeviceType::CUDA)};
}

}  // namespace plimsoll
