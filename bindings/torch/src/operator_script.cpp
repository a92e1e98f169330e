// SPDX-License-Identifier: Apache-2.0
#include "operator_script.h"

#include "plimsoll/plan/layout.h"

namespace plimsoll::detail {

void AllocationTrace::clear() {
  lives_.clear();
  clock_ = 0;
}

std::size_t AllocationTrace::begin(std::int64_t bytes) {
  lives_.push_back({bytes, clock_++, kLive});
  return lives_.size() - 1;
}

void AllocationTrace::end(std::size_t allocation) {
  if (allocation < lives_.size()) lives_[allocation].end = clock_++;
}

OperatorScript AllocationTrace::lay_out() const {
  plan::LayoutProblem problem;
  for (const Life& life : lives_) {
    plan::LayoutBuffer buffer;
    buffer.lifetime = {life.begin, life.end == kLive ? clock_ + 1 : life.end};
    buffer.size_bytes = life.bytes;
    problem.buffers.push_back(buffer);
  }
  plan::LayoutOptions options;
  options.node_limit = 20'000;
  options.local_limit = 50;
  const plan::LayoutResult layout = plan::solve_layout(problem, options);
  OperatorScript script;
  script.bytes = layout.arena_bytes();
  for (std::size_t i = 0; i < lives_.size(); ++i) {
    script.allocations.push_back({lives_[i].bytes, layout.offsets_bytes[i]});
  }
  return script;
}

std::shared_ptr<const OperatorScript> ScriptBook::find(std::uint64_t key) const {
  const auto found = scripts_.find(key);
  return found == scripts_.end() ? nullptr : found->second;
}

void ScriptBook::keep(std::uint64_t key, std::shared_ptr<const OperatorScript> script) {
  // Shapes that never repeat must not pile up.
  if (scripts_.size() >= kMostScripts) scripts_.clear();
  scripts_[key] = std::move(script);
}

}  // namespace plimsoll::detail
