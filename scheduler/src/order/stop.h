// SPDX-License-Identifier: Apache-2.0
// When to stop: a caller's flag and a deadline.
#pragma once

#include <chrono>
#include <functional>
#include <utility>

namespace plimsoll::order {

// Asked between steps of a search. Once it has said yes it says yes for ever. Single owner.
class Stopper {
 public:
  // A negative limit means none.
  Stopper(std::function<bool()> flag, double limit_seconds)
      : flag_(std::move(flag)),
        start_(std::chrono::steady_clock::now()),
        limit_seconds_(limit_seconds) {}

  bool operator()() {
    if (stopped_) return true;
    stopped_ = (limit_seconds_ >= 0 && seconds() >= limit_seconds_) || (flag_ && flag_());
    return stopped_;
  }
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::function<bool()> flag_;
  std::chrono::steady_clock::time_point start_;
  double limit_seconds_;
  bool stopped_ = false;
};

}  // namespace plimsoll::order
