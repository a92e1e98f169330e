// SPDX-License-Identifier: Apache-2.0
#include "job_queue.h"

#include <chrono>
#include <utility>

#include <ATen/Parallel.h>

namespace plimsoll::simgpu {
namespace {

thread_local DelaySource* t_delays = nullptr;

}  // namespace

DelaySource::DelaySource(const Delays& delays, int queue)
    : random_(delays.seed * 1000003 + static_cast<std::uint64_t>(queue)),
      longest_us_(delays.longest_us) {}

void DelaySource::wait() {
  if (longest_us_ <= 0) return;
  // Mostly short, at times long: both orders of two streams are met.
  const std::uint64_t draw = random_();
  const std::int64_t longest = (draw & 7) == 0 ? longest_us_ : longest_us_ / 8;
  const std::int64_t us =
      longest == 0 ? 0
                   : static_cast<std::int64_t>((draw >> 8) % static_cast<std::uint64_t>(longest));
  if (us > 0) std::this_thread::sleep_for(std::chrono::microseconds(us));
}

JobQueue::JobQueue(int queue, const Delays& delays)
    : number_(queue), delays_(delays, queue), thread_([this] { work(); }) {}

std::uint64_t JobQueue::push(Job job) {
  std::unique_lock lock(mutex_);
  const std::uint64_t number = ++pushed_;
  if (!is_stopped_) {
    jobs_.push_back(std::move(job));
    changed_.notify_all();
    return number;
  }
  completed_ = number;
  lock.unlock();
  job.run();
  return number;
}

void JobQueue::wait_for(std::uint64_t number) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return completed_ >= number; });
}

bool JobQueue::is_idle() {
  const std::lock_guard lock(mutex_);
  return jobs_.empty() && !is_busy_;
}

void JobQueue::wait_until_idle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return jobs_.empty() && !is_busy_; });
}

void JobQueue::set_delays(const Delays& delays) {
  wait_until_idle();
  const std::lock_guard lock(mutex_);
  delays_ = DelaySource(delays, number_);
}

void JobQueue::delay_this_job() {
  if (t_delays != nullptr) t_delays->wait();
}

void JobQueue::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void JobQueue::work() {
  // Else oneDNN and MKL use another number of threads here than on the host, and other bits.
  at::init_num_threads();
  t_delays = &delays_;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return is_stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) break;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    is_busy_ = true;
    lock.unlock();
    if (job.is_delayed) delays_.wait();
    job.run();
    job.run = nullptr;
    lock.lock();
    is_busy_ = false;
    ++completed_;
    changed_.notify_all();
  }
  is_stopped_ = true;
}

}  // namespace plimsoll::simgpu
