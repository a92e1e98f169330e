// SPDX-License-Identifier: Apache-2.0
// Runs a repeating program on a planned resource, every block under the checker.
//
// Noun: ProgramRunner.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "plimsoll/exec/planned_resource.h"

#include "live_blocks.h"

namespace plimsoll::exec::testing {

// Blocks waiting to be freed, by the time (counted in requests since the start) they are due.
class ProgramRunner {
 public:
  ProgramRunner(PlannedResource& resource, LiveBlocks& live) : resource_(resource), live_(live) {}
  ~ProgramRunner() { free_all(); }

  // One request; frees what is due before it.
  void* request(const ProgramBlock& block) {
    free_due();
    void* pointer = resource_.allocate_for(block.bytes, block.key, device::Queue::kCompute);
    ++now_;
    report(live_.add(pointer, block.bytes, resource_.alignment_bytes()));
    due_.emplace(now_ + block.lives_for - 1, Waiting{pointer, block.bytes});
    return pointer;
  }
  void run(const Program& program) {
    for (const ProgramBlock& block : program) request(block);
    resource_.step_mark();
  }
  void free_all() {
    for (const auto& [due, waiting] : due_) free(waiting);
    due_.clear();
  }
  // Takes a random waiting block out of the hands of the program; false where none waits.
  bool take_random(std::mt19937_64& random, void** pointer, std::int64_t* bytes) {
    if (due_.empty()) return false;
    auto chosen = std::next(due_.begin(), static_cast<std::ptrdiff_t>(random() % due_.size()));
    *pointer = chosen->second.pointer;
    *bytes = chosen->second.bytes;
    due_.erase(chosen);
    return true;
  }
  // Moves the frees of all waiting blocks that are due soon to later.
  void delay(std::int64_t requests) {
    std::multimap<std::int64_t, Waiting> later;
    for (const auto& [due, waiting] : due_) later.emplace(due + requests, waiting);
    due_.swap(later);
  }
  const std::string& problem() const { return problem_; }

 private:
  struct Waiting {
    void* pointer;
    std::int64_t bytes;
  };
  void free_due() {
    while (!due_.empty() && due_.begin()->first < now_ + 1) {
      free(due_.begin()->second);
      due_.erase(due_.begin());
    }
  }
  void free(const Waiting& waiting) {
    report(live_.remove(waiting.pointer));
    resource_.deallocate(waiting.pointer, waiting.bytes, device::Queue::kCompute);
  }
  void report(const std::string& problem) {
    if (problem_.empty()) problem_ = problem;
  }

  PlannedResource& resource_;
  LiveBlocks& live_;
  std::multimap<std::int64_t, Waiting> due_;
  std::int64_t now_ = 0;
  std::string problem_;
};

inline Program random_program(std::mt19937_64& random, int longest, bool with_keys) {
  Program program(1 + random() % static_cast<std::uint64_t>(longest));
  for (std::size_t i = 0; i < program.size(); ++i) {
    ProgramBlock& block = program[i];
    block.key = with_keys ? 1 + random() % 5 : 0;
    block.bytes = 1 + static_cast<std::int64_t>(random() % 1500);
    block.lives_for = 1 + static_cast<std::int64_t>(random() % 6);
    if (random() % 8 == 0) block.lives_for = static_cast<std::int64_t>(program.size());
  }
  return program;
}

}  // namespace plimsoll::exec::testing
