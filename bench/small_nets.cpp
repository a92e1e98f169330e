// SPDX-License-Identifier: Apache-2.0
// Runs one small net over and over and reports its latency; bench/planned_allocation.py compares
// allocators with it, one process each.
//
//   small_nets NET inference|training stock|planned STEPS [THREADS]
//   small_nets NET inference|training paired BLOCKS
//   small_nets NET inference|training record FILE
//
// `paired` alternates blocks of stock and planned steps in one process and then times every call of
// the two allocators, again in turn; what the timer itself takes is reported beside it. `record`
// writes the allocations of one step for the benchmark without LibTorch.
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

// The shortest look at the time there is: a call of the allocator takes less than the clock's.
std::int64_t ticks() {
#if defined(__x86_64__)
  return static_cast<std::int64_t>(__builtin_ia32_rdtsc());
#else
  return Clock::now().time_since_epoch().count();
#endif
}

double seconds_per_tick() {
  const auto begin = Clock::now();
  const std::int64_t first = ticks();
  while (seconds_since(begin) < 0.02) {
  }
  return seconds_since(begin) / static_cast<double>(ticks() - first);
}

// Times, or records, the calls of the allocator beneath it. There are two at most, so that a block
// finds its own again.
class WatchedAllocator final : public c10::Allocator {
 public:
  WatchedAllocator(int number, c10::Allocator* inner)
      : number_(number), inner_(inner), deleter_(inner->raw_deleter()) {
    all_[number] = this;
  }
  c10::DataPtr allocate(std::size_t bytes) override {
    const std::int64_t begin = ticks();
    c10::DataPtr memory = inner_->allocate(bytes);
    ticks_inside += ticks() - begin;
    ++calls;
    void* address = memory.release_context();
    if (is_recording && address != nullptr) {
      order[address] = allocations++;
      events.push_back("a " + std::to_string(bytes));
    }
    return {address, address, raw_deleter(), memory.device()};
  }
  c10::DeleterFnPtr raw_deleter() const override { return number_ == 0 ? &free<0> : &free<1>; }
  void copy_data(void* to, const void* from, std::size_t count) const override {
    default_copy_data(to, from, count);
  }
  void reset() { ticks_inside = calls = 0; }

  std::int64_t ticks_inside = 0;
  std::int64_t calls = 0;  // allocations; as many frees
  bool is_recording = false;
  std::int64_t allocations = 0;
  std::vector<std::string> events;
  std::unordered_map<void*, std::int64_t> order;  // of live blocks

 private:
  template <int kNumber>
  static void free(void* address) {
    WatchedAllocator& self = *all_[kNumber];
    if (self.is_recording)
      if (const auto block = self.order.extract(address))
        self.events.push_back("f " + std::to_string(block.mapped()));
    const std::int64_t begin = ticks();
    self.deleter_(address);
    self.ticks_inside += ticks() - begin;
  }
  static inline WatchedAllocator* all_[2] = {nullptr, nullptr};
  int number_;
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

// What timing a call adds where there is nothing to time.
double timer_seconds() {
  constexpr int kTimes = 1'000'000;
  std::int64_t inside = 0;
  for (int i = 0; i < kTimes; ++i) {
    const std::int64_t begin = ticks();
    inside += ticks() - begin;
  }
  return static_cast<double>(inside) * seconds_per_tick() / kTimes;
}

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

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// What blocks of steps took, in turn on one allocator and on the other. Which one is first changes
// from pair to pair, and a slow stretch of the machine hits both.
struct Pairs {
  std::vector<double> stock, planned, ratios;

  template <typename Block>
  Pairs(int blocks, c10::Allocator* on_stock, c10::Allocator* on_plan, Block block) {
    for (int i = 0; i < blocks; ++i) {
      const double first = block(i % 2 == 0 ? on_stock : on_plan);
      const double second = block(i % 2 == 0 ? on_plan : on_stock);
      stock.push_back(i % 2 == 0 ? first : second);
      planned.push_back(i % 2 == 0 ? second : first);
      ratios.push_back(planned.back() / stock.back());
    }
    std::sort(ratios.begin(), ratios.end());
  }
};

int run_paired(Workload& workload, int blocks) {
  c10::Allocator* stock = c10::GetCPUAllocator();
  plimsoll::install_allocator({.attribute = false, .plan = true});
  c10::Allocator* planned = c10::GetCPUAllocator();
  plimsoll::mark_step();
  run_steps(workload, kWarmUpSteps);
  int steps = 5;
  const auto step_seconds = [&](c10::Allocator* allocator) {
    c10::SetCPUAllocator(allocator, /*priority=*/1);
    run_steps(workload, 3);  // blocks of the other allocator are freed, caches fill
    return median(run_steps(workload, steps));
  };
  steps = std::clamp(static_cast<int>(0.01 / step_seconds(planned)), 5, 200);  // about 10 ms
  const auto before = plimsoll::planned_allocations();
  const Pairs pairs(blocks, stock, planned, step_seconds);
  const auto after = plimsoll::planned_allocations();

  WatchedAllocator watched_stock(0, stock);
  WatchedAllocator watched_plan(1, planned);
  const auto ticks_a_step = [&](c10::Allocator* allocator) {
    auto& watched = static_cast<WatchedAllocator&>(*allocator);
    c10::SetCPUAllocator(allocator, 1);
    run_steps(workload, 3);
    watched.reset();
    run_steps(workload, steps);
    return static_cast<double>(watched.ticks_inside) / steps;
  };
  const Pairs inside(blocks, &watched_stock, &watched_plan, ticks_a_step);
  const double allocations = static_cast<double>(watched_plan.calls) / steps;
  std::printf(
      "{\"stock_seconds\": %.9f, \"planned_seconds\": %.9f, \"time_ratio\": %.4f, "
      "\"time_ratio_quartiles\": [%.4f, %.4f], \"stock_allocator_seconds\": %.9f, "
      "\"planned_allocator_seconds\": %.9f, \"timer_seconds\": %.9f, "
      "\"allocations_per_step\": %.1f, \"planned\": %lld, \"unplanned\": %lld}\n",
      median(pairs.stock), median(pairs.planned), median(pairs.ratios),
      pairs.ratios[pairs.ratios.size() / 4], pairs.ratios[pairs.ratios.size() * 3 / 4],
      median(inside.stock) * seconds_per_tick(), median(inside.planned) * seconds_per_tick(),
      allocations * 2 * timer_seconds(), allocations,
      static_cast<long long>(after.planned - before.planned),
      static_cast<long long>(after.missed + after.escaped + after.refused - before.missed -
                             before.escaped - before.refused));
  // The net's blocks go back through the watched allocators: leave before those do.
  std::fflush(stdout);
  std::_Exit(0);
}

int record(Workload& workload, const char* file) {
  static WatchedAllocator watched(0, c10::GetCPUAllocator());
  c10::SetCPUAllocator(&watched, /*priority=*/2);
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
  const int threads = argc > 5 ? std::stoi(argv[5]) : 1;
  torch::set_num_threads(1);
  torch::set_num_interop_threads(1);
  if (mode.find("planned") != std::string::npos)
    plimsoll::install_allocator({.attribute = false, .plan = true});
  if (mode == "record") {
    Workload workload(net, trains);
    return record(workload, argv[4]);
  }
  if (mode == "paired") {
    std::thread([&] {
      Workload workload(net, trains);
      run_paired(workload, std::stoi(argv[4]));
    }).join();
  }
  const int steps = std::stoi(argv[4]);
  std::vector<double> seconds;
  std::mutex lock;
  std::vector<std::thread> workers;
  plimsoll::PlannedAllocations before;  // what the warm-up did
  std::barrier warmed_up(threads, [&]() noexcept { before = plimsoll::planned_allocations(); });
  const auto work = [&] {
    Workload workload(net, trains);
    plimsoll::mark_step();
    run_steps(workload, kWarmUpSteps);
    warmed_up.arrive_and_wait();
    const std::vector<double> mine = run_steps(workload, steps);
    const std::lock_guard guard(lock);
    seconds.insert(seconds.end(), mine.begin(), mine.end());
  };
  workers.reserve(static_cast<std::size_t>(threads));
  for (int i = 0; i < threads; ++i) workers.emplace_back(work);
  for (std::thread& worker : workers) worker.join();
  std::sort(seconds.begin(), seconds.end());
  const auto planned = plimsoll::planned_allocations();
  const auto number = [](std::int64_t after, std::int64_t earlier) {
    return static_cast<long long>(after - earlier);
  };
  std::printf(
      "{\"median_seconds\": %.9f, \"p99_seconds\": %.9f, \"peak_resident_bytes\": %lld, "
      "\"planned\": %lld, \"missed\": %lld, \"escaped\": %lld, \"refused\": %lld, "
      "\"plans_made\": %lld, \"arena_bytes\": %lld}\n",
      seconds[seconds.size() / 2], seconds[seconds.size() * 99 / 100],
      static_cast<long long>(peak_resident_bytes()), number(planned.planned, before.planned),
      number(planned.missed, before.missed), number(planned.escaped, before.escaped),
      number(planned.refused, before.refused), static_cast<long long>(planned.plans_made),
      static_cast<long long>(planned.arena_bytes));
  std::fflush(stdout);
  std::_Exit(0);
}
