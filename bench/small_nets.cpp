// SPDX-License-Identifier: Apache-2.0
// Runs one small net over and over and reports its latency; bench/planned_allocation.py compares
// allocators with it, one process each.
//
//   small_nets NET inference|training stock|planned|counted|counted-planned STEPS [THREADS]
//   small_nets NET inference|training record FILE
//
// `counted` also times every call of the allocator. `record` writes the allocations of one step for
// the benchmark without LibTorch.
#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include <c10/core/CPUAllocator.h>
#include <torch/torch.h>

#include "plimsoll/allocator.h"
#include "plimsoll/models/model.h"

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Times, or records, the calls of the allocator beneath it.
class WatchedAllocator final : public c10::Allocator {
 public:
  static WatchedAllocator& over_current() {
    static WatchedAllocator watched(c10::GetCPUAllocator());
    return watched;
  }
  explicit WatchedAllocator(c10::Allocator* inner) : inner_(inner) {
    deleter_ = inner->raw_deleter();
    c10::SetCPUAllocator(this, /*priority=*/2);
  }
  c10::DataPtr allocate(std::size_t bytes) override {
    const auto begin = Clock::now();
    c10::DataPtr memory = inner_->allocate(bytes);
    nanoseconds += seconds_since(begin) * 1e9;
    ++calls;
    void* address = memory.release_context();
    if (is_recording && address != nullptr) {
      live[address] = events.size();
      events.push_back("a " + std::to_string(bytes));
      order[address] = allocations++;
    }
    return {address, address, &WatchedAllocator::free, memory.device()};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &WatchedAllocator::free; }
  void copy_data(void* to, const void* from, std::size_t count) const override {
    default_copy_data(to, from, count);
  }

  void reset() {
    nanoseconds = 0;
    calls = 0;
  }

  double nanoseconds = 0;
  std::int64_t calls = 0;
  bool is_recording = false;
  std::int64_t allocations = 0;
  std::vector<std::string> events;
  std::unordered_map<void*, std::size_t> live;
  std::unordered_map<void*, std::int64_t> order;

 private:
  static void free(void* address) {
    WatchedAllocator& self = over_current();
    if (self.is_recording && self.live.erase(address) != 0)
      self.events.push_back("f " + std::to_string(self.order[address]));
    const auto begin = Clock::now();
    self.deleter_(address);
    self.nanoseconds += seconds_since(begin) * 1e9;
  }
  c10::Allocator* inner_;
  c10::DeleterFnPtr deleter_;
};

// A net with its data, able to run one step.
class Workload {
 public:
  Workload(const std::string& net, bool trains)
      : model_(plimsoll::models::make_model(net, 1)),
        batch_(plimsoll::models::synthetic_batch(model_->shape(), trains ? 4 : 1, 1)),
        trains_(trains) {
    if (trains_)
      optimizer_ = std::make_unique<torch::optim::SGD>(
          model_->parameters(), torch::optim::SGDOptions(1e-3).momentum(0.9));
    else
      model_->eval();
  }
  void step() {
    if (!trains_) {
      torch::InferenceMode guard;
      model_->forward(batch_.input);
      return;
    }
    optimizer_->zero_grad();
    plimsoll::models::cross_entropy(model_->forward(batch_.input), batch_.target).backward();
    optimizer_->step();
  }

 private:
  std::shared_ptr<plimsoll::models::Model> model_;
  plimsoll::models::Batch batch_;
  bool trains_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

std::int64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "VmHWM:") {
      std::int64_t kib = 0;
      status >> kib;
      return kib * 1024;
    }
  return 0;
}

constexpr int kWarmUpSteps = 20;

std::vector<double> run_steps(Workload& workload, int steps) {
  std::vector<double> seconds;
  for (int i = 0; i < steps; ++i) {
    const auto begin = Clock::now();
    workload.step();
    plimsoll::mark_step();
    seconds.push_back(seconds_since(begin));
  }
  return seconds;
}

int record(Workload& workload, const char* file) {
  WatchedAllocator& watched = WatchedAllocator::over_current();
  for (int i = 0; i < 3; ++i) workload.step();
  watched.is_recording = true;
  workload.step();
  watched.is_recording = false;
  std::ofstream out(file);
  for (const std::string& event : watched.events) out << event << '\n';
  return out ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "see the head of bench/small_nets.cpp\n");
    return 2;
  }
  const std::string net = argv[1];
  const bool trains = std::string(argv[2]) == "training";
  const std::string mode = argv[3];
  const int threads = argc > 5 ? std::atoi(argv[5]) : 1;
  torch::set_num_threads(1);
  torch::set_num_interop_threads(1);
  if (mode.find("planned") != std::string::npos)
    plimsoll::install_allocator({.attribute = false, .plan = true});
  if (mode == "record") {
    Workload workload(net, trains);
    return record(workload, argv[4]);
  }
  const bool counts = mode.find("counted") != std::string::npos;
  const int steps = std::atoi(argv[4]);
  std::vector<double> seconds;
  std::mutex lock;
  std::vector<std::thread> workers;
  plimsoll::PlannedAllocations before;  // what the warm-up did
  WatchedAllocator* watched = counts ? &WatchedAllocator::over_current() : nullptr;
  std::barrier warmed_up(threads, [&]() noexcept {
    before = plimsoll::planned_allocations();
    if (watched != nullptr) watched->reset();
  });
  const auto work = [&] {
    Workload workload(net, trains);
    plimsoll::mark_step();
    run_steps(workload, kWarmUpSteps);
    warmed_up.arrive_and_wait();
    const std::vector<double> mine = run_steps(workload, steps);
    const std::lock_guard guard(lock);
    seconds.insert(seconds.end(), mine.begin(), mine.end());
  };
  for (int i = 0; i < threads; ++i) workers.emplace_back(work);
  for (std::thread& worker : workers) worker.join();
  std::sort(seconds.begin(), seconds.end());
  const auto planned = plimsoll::planned_allocations();
  const double all_steps = static_cast<double>(threads) * steps;
  const auto number = [](std::int64_t after, std::int64_t earlier) {
    return static_cast<long long>(after - earlier);
  };
  std::printf(
      "{\"median_seconds\": %.9f, \"p99_seconds\": %.9f, \"peak_resident_bytes\": %lld, "
      "\"planned\": %lld, \"missed\": %lld, \"escaped\": %lld, \"refused\": %lld, "
      "\"plans_made\": %lld, \"arena_bytes\": %lld, "
      "\"allocator_seconds_per_step\": %.9f, \"allocator_calls_per_step\": %.1f}\n",
      seconds[seconds.size() / 2], seconds[seconds.size() * 99 / 100],
      static_cast<long long>(peak_resident_bytes()), number(planned.planned, before.planned),
      number(planned.missed, before.missed), number(planned.escaped, before.escaped),
      number(planned.refused, before.refused), static_cast<long long>(planned.plans_made),
      static_cast<long long>(planned.arena_bytes),
      watched != nullptr ? watched->nanoseconds * 1e-9 / all_steps : 0.0,
      watched != nullptr ? static_cast<double>(watched->calls) / all_steps : 0.0);
  std::fflush(stdout);
  std::_Exit(0);
}
