// SPDX-License-Identifier: Apache-2.0
#include "device/copy_engine.h"

#include <chrono>
#include <cstring>

namespace plimsoll::device {

HostDevice::CopyEngine::CopyEngine() : thread_([this] { run(); }) {}

HostDevice::CopyEngine::~CopyEngine() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  jobs_changed_.notify_one();
  thread_.join();
}

std::uint64_t HostDevice::CopyEngine::submit(const Copy& copy) {
  Job job;
  job.kind = Job::Kind::kCopy;
  job.copy = copy;
  return push(&job);
}

void HostDevice::CopyEngine::submit_wait(const CopyEngine& other, std::uint64_t mark) {
  Job job;
  job.kind = Job::Kind::kWait;
  job.other = &other;
  job.mark = mark;
  push(&job);
}

std::uint64_t HostDevice::CopyEngine::record() { return push(nullptr); }

// Queues a job, if there is one, and a mark behind it.
std::uint64_t HostDevice::CopyEngine::push(const Job* job) {
  std::uint64_t mark = 0;
  {
    const std::lock_guard lock(mutex_);
    if (job != nullptr) jobs_.push_back(*job);
    mark = ++recorded_;
    Job end;
    end.mark = mark;
    jobs_.push_back(end);
  }
  jobs_changed_.notify_one();
  return mark;
}

bool HostDevice::CopyEngine::reached(std::uint64_t mark) const noexcept {
  return reached_.load(std::memory_order_acquire) >= mark;
}

bool HostDevice::CopyEngine::wait_for(std::uint64_t mark) const {
  std::unique_lock lock(mutex_);
  reached_changed_.wait(lock, [&] { return reached_.load(std::memory_order_relaxed) >= mark; });
  return !failed_marks_.contains(mark);
}

void HostDevice::CopyEngine::run() {
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      jobs_changed_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      job = jobs_.front();
      jobs_.pop_front();
    }
    switch (job.kind) {
      case Job::Kind::kCopy:
        run_copy(job.copy);
        break;
      case Job::Kind::kWait:
        job.other->wait_for(job.mark);
        break;
      case Job::Kind::kMark: {
        const std::lock_guard lock(mutex_);
        if (failed_since_mark_) failed_marks_.insert(job.mark);
        failed_since_mark_ = false;
        reached_.store(job.mark, std::memory_order_release);
        break;
      }
    }
    if (job.kind == Job::Kind::kMark) reached_changed_.notify_all();
  }
}

void HostDevice::CopyEngine::run_copy(const Copy& copy) {
  if (copy.delay_ns > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(copy.delay_ns));
  const auto bytes = static_cast<std::size_t>(copy.fails ? copy.bytes / 2 : copy.bytes);
  if (bytes > 0) std::memmove(copy.destination, copy.source, bytes);
  failed_since_mark_ |= copy.fails;
}

HostDevice::Workers::Workers(int threads) : parts_(threads + 1) {
  threads_.reserve(static_cast<std::size_t>(threads));
  for (int index = 0; index < threads; ++index)
    threads_.emplace_back([this, index] { work(index); });
}

HostDevice::Workers::~Workers() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  started_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

namespace {

// The part of [0, count) that falls to one of `parts`.
std::pair<std::int64_t, std::int64_t> part_of(std::int64_t count, std::int64_t index,
                                              std::int64_t parts) {
  return {count * index / parts, count * (index + 1) / parts};
}

}  // namespace

void HostDevice::Workers::run(std::int64_t count,
                              const std::function<void(std::int64_t, std::int64_t)>& body) {
  {
    const std::lock_guard lock(mutex_);
    body_ = &body;
    count_ = count;
    running_ = static_cast<int>(parts_ - 1);
    ++generation_;
  }
  started_.notify_all();
  const auto [begin, end] = part_of(count, parts_ - 1, parts_);
  if (begin < end) body(begin, end);
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [&] { return running_ == 0; });
  body_ = nullptr;
}

void HostDevice::Workers::work(int index) {
  std::uint64_t seen = 0;
  for (;;) {
    const std::function<void(std::int64_t, std::int64_t)>* body = nullptr;
    std::int64_t count = 0;
    {
      std::unique_lock lock(mutex_);
      started_.wait(lock, [&] { return stopping_ || generation_ != seen; });
      if (stopping_) return;
      seen = generation_;
      body = body_;
      count = count_;
    }
    const auto [begin, end] = part_of(count, index, parts_);
    if (begin < end) (*body)(begin, end);
    const std::lock_guard lock(mutex_);
    if (--running_ == 0) finished_.notify_one();
  }
}

}  // namespace plimsoll::device
