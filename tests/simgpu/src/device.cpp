// SPDX-License-Identifier: Apache-2.0
#include "simgpu/device.h"

#include <cstdlib>
#include <mutex>
#include <stdexcept>

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>

#include "device_generator.h"
#include "device_guard.h"
#include "device_hooks.h"
#include "device_memory.h"
#include "kernel_registration.h"
#include "pinned_memory.h"
#include "runtime.h"
#include "simgpu/races.h"
#include "simgpu/timeline.h"

namespace plimsoll::simgpu {
namespace {

std::mutex g_install_mutex;

void stop_at_exit() {
  // Threads must not run on while the libraries they run in are torn down. What is freed or run
  // after this runs at once on its caller.
  runtime().stop_threads();
}

void register_backend(const DeviceOptions& options) {
  c10::register_privateuse1_backend("sim");
  set_runtime(new Runtime(options));
  make_device_memories(options.capacity_bytes);
  make_default_generators(options.generator);
  register_device_guard();
  register_hooks();
  c10::SetAllocator(kType, new DeviceAllocator());
  register_operator_runner();
  register_autocast();
  // What LibTorch's host code makes at its first use is made before: it ends after the threads
  // then, which may be in it to the last.
  at::ones({2}).add(1);
  std::atexit(&stop_at_exit);
}

}  // namespace

void install(const DeviceOptions& options) {
  const std::lock_guard lock(g_install_mutex);
  if (!is_installed()) return register_backend(options);
  runtime().set_options(options);
  for (c10::DeviceIndex device = 0; device < kDevices; ++device) {
    device_memory(device).set_capacity(options.capacity_bytes);
  }
  make_default_generators(options.generator);
}

void set_delays(const Delays& delays) { runtime().set_delays(delays); }

void drain() { runtime().drain(); }

std::string device_error(c10::DeviceIndex device) { return runtime().error(device); }

void clear_device_errors() { runtime().clear_errors(); }

void inject_device_error(c10::DeviceIndex device, const std::string& text) {
  runtime().launch(current_stream(device),
                   {"an injected error", {}, {}, [text] { throw std::runtime_error(text); }, {}});
}

std::vector<Race> take_races() {
  return runtime().with_checker([](RaceChecker& checker) { return checker.take_races(); });
}

RaceCounts race_counts() {
  return runtime().with_checker([](RaceChecker& checker) { return checker.counts(); });
}

void start_timeline(const Speeds& speeds) {
  runtime().with_clock([&](VirtualClock& clock) { clock.start(speeds); });
}

void stop_timeline() {
  runtime().with_clock([](VirtualClock& clock) { clock.stop(); });
}

std::vector<TimedOperation> timed_operations() {
  return runtime().with_clock([](VirtualClock& clock) { return clock.operations(); });
}

std::vector<StreamTimes> stream_times() {
  return runtime().with_clock([](VirtualClock& clock) { return clock.stream_times(); });
}

std::int64_t timeline_end_ns() {
  return runtime().with_clock([](VirtualClock& clock) { return clock.end_ns(); });
}

double hidden_copy_share() {
  return runtime().with_clock([](VirtualClock& clock) { return clock.hidden_copy_share(); });
}

}  // namespace plimsoll::simgpu
