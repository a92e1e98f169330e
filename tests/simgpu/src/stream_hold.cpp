// SPDX-License-Identifier: Apache-2.0
#include "simgpu/stream_hold.h"

#include <condition_variable>
#include <mutex>

#include "runtime.h"

namespace plimsoll::simgpu {

struct StreamHold::Gate {
  std::mutex mutex;
  std::condition_variable opened;
  bool is_open = false;
};

StreamHold::StreamHold(const c10::Stream& stream) : gate_(std::make_shared<Gate>()) {
  OperationCost nothing;
  nothing.is_counted = false;
  auto wait = [gate = gate_] {
    std::unique_lock lock(gate->mutex);
    gate->opened.wait(lock, [&] { return gate->is_open; });
  };
  runtime().launch(stream, {"a hold", {}, nothing, wait, {}});
}

void StreamHold::release() {
  const std::lock_guard lock(gate_->mutex);
  gate_->is_open = true;
  gate_->opened.notify_all();
}

}  // namespace plimsoll::simgpu
