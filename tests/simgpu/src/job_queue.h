// SPDX-License-Identifier: Apache-2.0
// A thread that runs one stream's jobs in order.
//
// Nouns: Job, JobQueue.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <random>
#include <thread>

#include "simgpu/device.h"

namespace plimsoll::simgpu {

struct Job {
  std::function<void()> run;  // must not throw
  bool is_delayed = true;
};

// The waits of one queue, from the seed and the queue's number alone.
class DelaySource {
 public:
  DelaySource(const Delays& delays, int queue);
  void wait();

 private:
  std::mt19937_64 random_;
  std::int64_t longest_us_;
};

class JobQueue {
 public:
  JobQueue(int queue, const Delays& delays);
  ~JobQueue() { stop(); }
  JobQueue(const JobQueue&) = delete;
  JobQueue& operator=(const JobQueue&) = delete;

  // After stop, runs the job at once. Returns the job's number.
  std::uint64_t push(Job job);
  void wait_for(std::uint64_t number);
  bool is_idle();
  void wait_until_idle();
  void set_delays(const Delays& delays);
  void stop();
  // For the middle of a job, on the queue's own thread.
  static void delay_this_job();

 private:
  void work();

  const int number_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;  // guarded by mutex_, like the rest
  bool is_busy_ = false;
  std::uint64_t pushed_ = 0;
  std::uint64_t completed_ = 0;
  bool is_stopping_ = false;
  bool is_stopped_ = false;
  DelaySource delays_;  // of the worker; exchanged only while idle
  std::thread thread_;
};

}  // namespace plimsoll::simgpu
