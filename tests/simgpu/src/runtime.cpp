// SPDX-License-Identifier: Apache-2.0
#include "runtime.h"

#include <exception>
#include <utility>

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include "mutation_state.h"

namespace plimsoll::simgpu {
namespace {

std::atomic<Runtime*> g_runtime{nullptr};

}  // namespace

Runtime& runtime() {
  Runtime* made = g_runtime.load(std::memory_order_acquire);
  TORCH_CHECK(made != nullptr, "simgpu: the test device is not installed in this process");
  return *made;
}

bool is_installed() { return g_runtime.load(std::memory_order_acquire) != nullptr; }

void set_runtime(Runtime* made) { g_runtime.store(made, std::memory_order_release); }

bool EventState::is_done(std::uint64_t version) {
  const std::lock_guard lock(mutex);
  return done >= version;
}

void EventState::wait(std::uint64_t version) {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return done >= version; });
}

JobQueue& Runtime::queue(const c10::Stream& stream) {
  const int number = queue_of(stream);
  auto& queue = queues_[static_cast<std::size_t>(number)];
  if (queue == nullptr) {
    queue = std::make_unique<JobQueue>(number, delays_);
    if (is_stopped_) queue->stop();
  }
  return *queue;
}

// Kernels run with as many threads as the host's would, since bits depend on it. Each thread has
// its own number: the last one that a thread was seen to change counts. (A thread's first is not
// news; autograd's threads keep the number they began with.)
void Runtime::note_thread_count() {
  thread_local int t_last = 0;
  const int now = at::get_num_threads();
  if (kernel_threads_ == 0 || (t_last != 0 && t_last != now)) kernel_threads_ = now;
  t_last = now;
}

void Runtime::issue(const c10::Stream& stream, Launch& launch, bool runs_always) {
  const c10::DeviceIndex device = stream.device_index();
  const std::lock_guard lock(mutex_);
  checker_.issue(queue_of(stream), launch.name, launch.accesses, launch.finished);
  clock_.issue(queue_of(stream), launch.name, launch.cost);
  if (!launch.run) return;
  note_thread_count();
  auto run = [this, device, runs_always, threads = kernel_threads_, run = std::move(launch.run)] {
    if (!runs_always && has_error_[static_cast<std::size_t>(device)]) return;
    try {
      if (!runs_always && at::get_num_threads() != threads) at::set_num_threads(threads);
      run();
    } catch (const std::exception& error) {
      fail(device, error.what());
    }
  };
  queue(stream).push({std::move(run), !runs_always});
}

void Runtime::launch(const c10::Stream& stream, Launch launch) {
  throw_on_error(stream.device_index());
  issue(stream, launch, false);
}

void Runtime::launch_unchecked(const c10::Stream& stream, Launch launch) noexcept {
  issue(stream, launch, true);
}

void Runtime::access_from_host(std::string_view operation, ByteRange range,
                               std::span<const VectorClock> finished) {
  const RangeAccess access{range, true};
  const std::lock_guard lock(mutex_);
  checker_.access_from_host(operation, {&access, 1}, finished);
}

void Runtime::forget(ByteRange range) {
  const std::lock_guard lock(mutex_);
  checker_.forget(range);
}

void Runtime::record(const Event& event, const c10::Stream& stream) {
  const std::lock_guard lock(mutex_);
  event->knows = checker_.record(queue_of(stream));
  event->virtual_time = clock_.record(queue_of(stream));
  event->stream = stream;
  const std::uint64_t version = ++event->issued;
  auto mark = [event, version] {
    const std::lock_guard event_lock(event->mutex);
    event->done = std::max(event->done, version);
    event->changed.notify_all();
  };
  queue(stream).push({std::move(mark), false});
}

void Runtime::block(const Event& event, const c10::Stream& stream) {
  if (is_left_out(SyncKind::kStreamWait, stream, event->stream)) return;
  const std::lock_guard lock(mutex_);
  const std::uint64_t version = event->issued;
  if (version == 0) return;
  checker_.wait(queue_of(stream), event->knows);
  clock_.wait(queue_of(stream), event->virtual_time);
  queue(stream).push({[event, version] { event->wait(version); }, false});
}

bool Runtime::query(const Event& event) {
  std::unique_lock lock(mutex_);
  const std::uint64_t version = event->issued;
  if (version == 0) return true;
  if (clock_.is_on()) {
    if (!clock_.has_happened(event->virtual_time)) return false;
    lock.unlock();
    event->wait(version);
  } else {
    lock.unlock();
    if (!event->is_done(version)) return false;
  }
  lock.lock();
  checker_.wait_on_host(event->knows);
  const c10::DeviceIndex device = event->stream->device_index();
  lock.unlock();
  throw_on_error(device);
  return true;
}

std::optional<VectorClock> Runtime::look_at(const Event& event, bool waits) {
  std::unique_lock lock(mutex_);
  const std::uint64_t version = event->issued;
  const VectorClock knows = event->knows;
  lock.unlock();
  if (waits) event->wait(version);
  if (!event->is_done(version)) return std::nullopt;
  return knows;
}

void Runtime::synchronize(const Event& event) {
  std::unique_lock lock(mutex_);
  const std::uint64_t version = event->issued;
  if (version == 0) return;
  const VectorClock knows = event->knows;
  const Instant virtual_time = event->virtual_time;
  const c10::DeviceIndex device = event->stream->device_index();
  lock.unlock();
  event->wait(version);
  lock.lock();
  checker_.wait_on_host(knows);
  clock_.wait_on_host(virtual_time);
  lock.unlock();
  throw_on_error(device);
}

void Runtime::synchronize(const c10::Stream& stream) {
  std::unique_lock lock(mutex_);
  const int number = queue_of(stream);
  const VectorClock knows = checker_.record(number);
  const Instant virtual_time = clock_.record(number);
  JobQueue& waited = queue(stream);
  // Not an event's mark, which is there a moment before the queue is idle: a stream that has been
  // waited for has to be idle when it is asked.
  const std::uint64_t job = waited.push({[] {}, false});
  lock.unlock();
  waited.wait_for(job);
  lock.lock();
  checker_.wait_on_host(knows);
  clock_.wait_on_host(virtual_time);
  lock.unlock();
  throw_on_error(stream.device_index());
}

bool Runtime::query(const c10::Stream& stream) {
  {
    const std::lock_guard lock(mutex_);
    const int number = queue_of(stream);
    if (!clock_.is_on()) {
      if (!queue(stream).is_idle()) return false;
    } else if (!clock_.has_happened(clock_.record(number))) {
      return false;
    } else {
      queue(stream).wait_until_idle();
    }
    checker_.wait_on_host(checker_.record(number));
  }
  throw_on_error(stream.device_index());
  return true;
}

void Runtime::synchronize_device(c10::DeviceIndex device) {
  for (c10::StreamId id = 0; id < kStreamsPerDevice; ++id) {
    const c10::Stream stream = stream_of(device, id);
    {
      const std::lock_guard lock(mutex_);
      if (queues_[static_cast<std::size_t>(queue_of(stream))] == nullptr) continue;
    }
    synchronize(stream);
  }
  throw_on_error(device);
}

void Runtime::drain(c10::DeviceIndex device) {
  for (c10::StreamId id = 0; id < kStreamsPerDevice; ++id) {
    JobQueue* waited = nullptr;
    {
      const std::lock_guard lock(mutex_);
      waited = queues_[static_cast<std::size_t>(queue_of(stream_of(device, id)))].get();
    }
    if (waited != nullptr) waited->wait_until_idle();
  }
}

void Runtime::drain() {
  for (c10::DeviceIndex device = 0; device < kDevices; ++device) drain(device);
}

void Runtime::set_delays(const Delays& delays) {
  drain();
  const std::lock_guard lock(mutex_);
  delays_ = delays;
  for (auto& queue : queues_) {
    if (queue != nullptr) queue->set_delays(delays);
  }
}

void Runtime::stop_threads() {
  drain();
  const std::lock_guard lock(mutex_);
  is_stopped_ = true;
  for (auto& queue : queues_) {
    if (queue != nullptr) queue->stop();
  }
}

void Runtime::throw_on_error(c10::DeviceIndex device) {
  if (!has_error_[static_cast<std::size_t>(device)]) return;
  TORCH_CHECK(false, "simgpu: device error on sim:", static_cast<int>(device),
              ", reported by a later call: ", error(device));
}

void Runtime::fail(c10::DeviceIndex device, const std::string& text) noexcept {
  const std::lock_guard lock(error_mutex_);
  std::string& kept = errors_[static_cast<std::size_t>(device)];
  if (kept.empty()) kept = text.substr(0, text.find('\n'));
  has_error_[static_cast<std::size_t>(device)] = true;
}

std::string Runtime::error(c10::DeviceIndex device) {
  const std::lock_guard lock(error_mutex_);
  return errors_[static_cast<std::size_t>(device)];
}

void Runtime::clear_errors() {
  drain();
  const std::lock_guard lock(error_mutex_);
  for (std::size_t i = 0; i < kDevices; ++i) {
    errors_[i].clear();
    has_error_[i] = false;
  }
}

}  // namespace plimsoll::simgpu
