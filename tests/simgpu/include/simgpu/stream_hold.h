// SPDX-License-Identifier: Apache-2.0
// Keeps a stream from going on, so that a test can show what does not wait for it, on any machine
// and under any load.
//
// Nouns: StreamHold.
#pragma once

#include <memory>

#include <c10/core/Stream.h>

namespace plimsoll::simgpu {

// What is issued on the stream afterwards waits until the hold is released or destroyed. While it
// lasts, a call that waits for the stream never returns: the first of a signature, or one with a
// result on the host. Orders nothing in the checker's eyes.
class StreamHold {
 public:
  explicit StreamHold(const c10::Stream& stream);
  ~StreamHold() { release(); }
  StreamHold(const StreamHold&) = delete;
  StreamHold& operator=(const StreamHold&) = delete;
  void release();

 private:
  struct Gate;
  std::shared_ptr<Gate> gate_;
};

}  // namespace plimsoll::simgpu
