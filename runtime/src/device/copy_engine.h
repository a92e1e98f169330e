// SPDX-License-Identifier: Apache-2.0
// Noun: HostDevice::CopyEngine, one in-order queue of copies run by one thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <set>
#include <thread>

#include "plimsoll/device/host_device.h"

namespace plimsoll::device {

// Marks (events) are numbered from 1 in the order of record(); a mark fails where a copy between
// the mark before it and itself failed.
// Threads: safe.
class HostDevice::CopyEngine {
 public:
  struct Copy {
    void* destination = nullptr;
    const void* source = nullptr;
    std::int64_t bytes = 0;
    std::int64_t delay_ns = 0;
    bool fails = false;  // copies half, then fails
  };

  CopyEngine();
  // Runs what is queued, then ends the thread.
  ~CopyEngine();

  // Returns the mark at its end.
  std::uint64_t submit(const Copy& copy);
  // Holds the queue back until `other` has reached its mark.
  void submit_wait(const CopyEngine& other, std::uint64_t mark);
  std::uint64_t record();
  bool reached(std::uint64_t mark) const noexcept;
  // Blocks until the mark is reached; false where the mark failed.
  bool wait_for(std::uint64_t mark) const;
  void drain() { wait_for(record()); }

 private:
  struct Job {
    enum class Kind : std::uint8_t { kCopy, kWait, kMark } kind = Kind::kMark;
    Copy copy;
    const CopyEngine* other = nullptr;
    std::uint64_t mark = 0;
  };

  std::uint64_t push(const Job* job);
  void run();
  void run_copy(const Copy& copy);

  mutable std::mutex mutex_;
  mutable std::condition_variable reached_changed_;  // waits for reached_
  std::condition_variable jobs_changed_;             // waits for jobs_ or stopping_
  std::deque<Job> jobs_;                             // guarded by mutex_
  std::set<std::uint64_t> failed_marks_;             // guarded by mutex_
  std::uint64_t recorded_ = 0;                       // guarded by mutex_
  std::atomic<std::uint64_t> reached_{0};            // written under mutex_
  bool stopping_ = false;                            // guarded by mutex_
  bool failed_since_mark_ = false;                   // the thread's own
  std::thread thread_;                               // last: starts when all else stands
};

// Threads for blocking copies where the user gave no parallel_for.
class HostDevice::Workers {
 public:
  explicit Workers(int threads);  // beside the caller's
  ~Workers();
  // As ParallelFor; one call at a time.
  void run(std::int64_t count, const std::function<void(std::int64_t, std::int64_t)>& body);

 private:
  void work(int index);

  const std::int64_t parts_;  // threads and the caller; the threads read it while others start
  std::mutex mutex_;
  std::condition_variable started_;
  std::condition_variable finished_;
  const std::function<void(std::int64_t, std::int64_t)>* body_ = nullptr;  // guarded by mutex_
  std::int64_t count_ = 0;                                                 // guarded by mutex_
  std::uint64_t generation_ = 0;                                           // guarded by mutex_
  int running_ = 0;                                                        // guarded by mutex_
  bool stopping_ = false;                                                  // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace plimsoll::device
