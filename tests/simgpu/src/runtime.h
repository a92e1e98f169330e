// SPDX-License-Identifier: Apache-2.0
// What all parts of the device share: its queues, errors, checker and clock. Jobs are issued here.
//
// Nouns: Launch, EventState, Runtime.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>

#include <c10/core/Stream.h>

#include "job_queue.h"
#include "race_checker.h"
#include "simgpu/device.h"
#include "virtual_clock.h"

namespace plimsoll::simgpu {

// One operation as a stream sees it.
struct Launch {
  std::string_view name;
  std::span<const RangeAccess> accesses = {};
  OperationCost cost = {};
  std::function<void()> run = {};
  std::span<const VectorClock> finished = {};  // see RaceChecker::issue
};

// An event's last record. Versions tell records apart: a wait is for the record current when it
// was issued.
struct EventState {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t done = 0;  // guarded by mutex
  // Guarded by the runtime's lock.
  std::uint64_t issued = 0;
  VectorClock knows;
  Instant virtual_time;
  std::optional<c10::Stream> stream;

  bool is_done(std::uint64_t version);
  void wait(std::uint64_t version);
};
using Event = std::shared_ptr<EventState>;

class Runtime {
 public:
  explicit Runtime(const DeviceOptions& options) : options_(options) {}

  const DeviceOptions& options() const { return options_; }
  void set_options(const DeviceOptions& options) { options_ = options; }

  // Puts the operation behind what the stream has. Errors: a device error of earlier is thrown.
  void launch(const c10::Stream& stream, Launch launch);
  // The same for bookkeeping: never throws, runs in spite of device errors.
  void launch_unchecked(const c10::Stream& stream, Launch launch) noexcept;
  void access_from_host(std::string_view operation, ByteRange range,
                        std::span<const VectorClock> finished = {});
  void forget(ByteRange range);

  void record(const Event& event, const c10::Stream& stream);
  void block(const Event& event, const c10::Stream& stream);
  bool query(const Event& event);
  // Whether it has really happened, or waits until it has; nobody learns of it. Returns what the
  // event knows.
  std::optional<VectorClock> look_at(const Event& event, bool waits);
  // Waits; what the event knows, the host knows then.
  void synchronize(const Event& event);
  void synchronize(const c10::Stream& stream);
  bool query(const c10::Stream& stream);
  void synchronize_device(c10::DeviceIndex device);
  // Waits without telling checker or clock.
  void drain(c10::DeviceIndex device);
  void drain();
  void set_delays(const Delays& delays);
  // Ends the threads; later jobs run at once on their caller.
  void stop_threads();

  void throw_on_error(c10::DeviceIndex device);
  void fail(c10::DeviceIndex device, const std::string& text) noexcept;
  std::string error(c10::DeviceIndex device);
  void clear_errors();

  template <typename F>
  auto with_checker(F&& use) {
    const std::lock_guard lock(mutex_);
    return use(checker_);
  }
  template <typename F>
  auto with_clock(F&& use) {
    const std::lock_guard lock(mutex_);
    return use(clock_);
  }

 private:
  JobQueue& queue(const c10::Stream& stream);
  void issue(const c10::Stream& stream, Launch& launch, bool runs_always);
  void note_thread_count();

  DeviceOptions options_;
  // Makes a job's place in its queue and in the checker's clocks one step.
  std::mutex mutex_;
  RaceChecker checker_;
  VirtualClock clock_;
  std::array<std::unique_ptr<JobQueue>, kQueues> queues_;  // guarded by mutex_
  Delays delays_;                                          // guarded by mutex_
  bool is_stopped_ = false;                                // guarded by mutex_
  int kernel_threads_ = 0;                                 // guarded by mutex_

  std::mutex error_mutex_;
  std::array<std::string, kDevices> errors_;  // guarded by error_mutex_
  std::array<std::atomic<bool>, kDevices> has_error_{};
};

// The one device of the process; made by install, never destroyed.
Runtime& runtime();
bool is_installed();
void set_runtime(Runtime* made);

}  // namespace plimsoll::simgpu
