// SPDX-License-Identifier: Apache-2.0
// Addresses for the instances of a plan. Instances that take one another's bytes over in place are
// one block.
#include <algorithm>
#include <map>
#include <numeric>

#include "plimsoll/base/bytes.h"
#include "plimsoll/base/interval.h"
#include "plimsoll/plan/layout.h"
#include "plimsoll/plan/plan.h"

namespace plimsoll::plan {
namespace {

struct Block {
  Interval steps;
  std::int64_t bytes = 0;  // aligned
  std::int64_t address = 0;
};

struct Blocks {
  std::vector<Block> blocks;
  std::vector<std::int32_t> of_instance;
  std::vector<std::int32_t> of_workspace;  // by step; -1: none
};

class BlockMaker {
 public:
  BlockMaker(const graph::Graph& graph, const Plan& plan) : graph_(graph), plan_(plan) {
    result_.of_instance.assign(plan.instances.size(), -1);
    result_.of_workspace.assign(plan.steps.size(), -1);
  }

  Blocks run() {
    for (const InstanceId id : plan_.initial) open(id, 0);
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
      const Step& step = plan_.steps[i];
      const auto at = static_cast<std::int64_t>(i);
      if (step.kind == StepKind::kFree) {
        close(step.instance, at);
      } else if (step.op.valid()) {
        add_operator(step, at);
      } else {
        open(step.instance, at);
      }
    }
    return std::move(result_);
  }

 private:
  void open(InstanceId id, std::int64_t at) {
    if (result_.of_instance[id.index()] >= 0) return;
    result_.of_instance[id.index()] = static_cast<std::int32_t>(result_.blocks.size());
    const std::int64_t bytes = graph_.size_bytes(plan_.instances[id.index()].storage);
    result_.blocks.push_back({{at, static_cast<std::int64_t>(plan_.steps.size()) + 1},
                              align_up(bytes, plan_.alignment_bytes),
                              0});
  }
  void close(InstanceId id, std::int64_t at) {
    result_.blocks[std::size_t(result_.of_instance[id.index()])].steps.end = at;
  }
  void add_operator(const Step& step, std::int64_t at) {
    if (step.taken_over.valid()) {
      const graph::StorageId heir = graph_.storage(graph_.inplace_result(step.op));
      for (const InstanceId id : step.touched)
        if (id.valid() && plan_.instances[id.index()].storage == heir)
          result_.of_instance[id.index()] = result_.of_instance[step.taken_over.index()];
    }
    for (const InstanceId id : step.touched)
      if (id.valid()) open(id, at);
    if (step.workspace_bytes <= 0) return;
    result_.of_workspace[std::size_t(at)] = static_cast<std::int32_t>(result_.blocks.size());
    result_.blocks.push_back(
        {{at, at + 1}, align_up(step.workspace_bytes, plan_.alignment_bytes), 0});
  }

  const graph::Graph& graph_;
  const Plan& plan_;
  Blocks result_;
};

std::int64_t load_of(const std::vector<Block>& blocks, std::size_t steps) {
  std::vector<std::int64_t> change(steps + 2);
  for (const Block& block : blocks) {
    if (block.steps.empty()) continue;
    change[std::size_t(block.steps.begin)] += block.bytes;
    change[std::size_t(block.steps.end)] -= block.bytes;
  }
  std::int64_t live = 0;
  std::int64_t peak = 0;
  for (const std::int64_t bytes : change) peak = std::max(peak, live += bytes);
  return peak;
}

// The free parts of an address space that grows at the top.
class FreeList {
 public:
  // The smallest hole that fits, the lowest of equals; else the top.
  std::int64_t take(std::int64_t bytes) {
    auto best = holes_.end();
    for (auto it = holes_.begin(); it != holes_.end(); ++it) {
      if (it->second < bytes) continue;
      if (best == holes_.end() || it->second < best->second) best = it;
    }
    if (best == holes_.end()) {
      if (!holes_.empty() &&
          std::prev(holes_.end())->first + std::prev(holes_.end())->second == top_) {
        const std::int64_t address = std::prev(holes_.end())->first;
        holes_.erase(std::prev(holes_.end()));
        top_ = address + bytes;
        return address;
      }
      const std::int64_t address = top_;
      top_ += bytes;
      return address;
    }
    const auto [address, length] = *best;
    holes_.erase(best);
    if (length > bytes) holes_.emplace(address + bytes, length - bytes);
    return address;
  }
  void give(std::int64_t address, std::int64_t bytes) {
    auto [it, inserted] = holes_.emplace(address, bytes);
    const auto next = std::next(it);
    if (next != holes_.end() && it->first + it->second == next->first) {
      it->second += next->second;
      holes_.erase(next);
    }
    if (it == holes_.begin()) return;
    const auto before = std::prev(it);
    if (before->first + before->second != it->first) return;
    before->second += it->second;
    holes_.erase(it);
  }

 private:
  std::map<std::int64_t, std::int64_t> holes_;
  std::int64_t top_ = 0;
};

std::int64_t top_of(const std::vector<Block>& blocks) {
  std::int64_t top = 0;
  for (const Block& block : blocks)
    if (!block.steps.empty()) top = std::max(top, block.address + block.bytes);
  return top;
}

// In order of birth, each in the smallest hole: near-linear, for any size.
void place_in_time_order(std::vector<Block>& blocks) {
  std::vector<std::size_t> by_begin(blocks.size());
  std::iota(by_begin.begin(), by_begin.end(), 0U);
  std::vector<std::size_t> by_end = by_begin;
  std::stable_sort(by_begin.begin(), by_begin.end(), [&](std::size_t a, std::size_t b) {
    return blocks[a].steps.begin < blocks[b].steps.begin;
  });
  std::stable_sort(by_end.begin(), by_end.end(), [&](std::size_t a, std::size_t b) {
    return blocks[a].steps.end < blocks[b].steps.end;
  });
  FreeList free;
  std::size_t ended = 0;
  for (const std::size_t b : by_begin) {
    if (blocks[b].steps.empty() || blocks[b].bytes == 0) continue;
    while (ended < by_end.size() && blocks[by_end[ended]].steps.end <= blocks[b].steps.begin) {
      const Block& dead = blocks[by_end[ended++]];
      if (!dead.steps.empty() && dead.bytes > 0) free.give(dead.address, dead.bytes);
    }
    blocks[b].address = free.take(blocks[b].bytes);
  }
}

// Blocks up to which the layout engine is asked where the quick order leaves holes, and how long it
// may work on them.
constexpr std::size_t kMaxEngine = 20000;
constexpr std::int64_t kGreedyVisits = 100'000;
constexpr std::size_t kMaxLocal = 3000;
// Holes below this part of the load are left alone.
constexpr std::int64_t kGoodEnough = 200;

// By the layout engine (layout.h): its greedy suite, and a short local search for small plans.
void place_by_engine(std::vector<Block>& blocks, std::int64_t moves) {
  LayoutProblem problem;
  problem.buffers.reserve(blocks.size());
  for (const Block& block : blocks) {
    LayoutBuffer buffer;
    buffer.lifetime = block.steps;
    buffer.size_bytes = block.bytes;
    problem.buffers.push_back(std::move(buffer));
  }
  LayoutOptions options;
  options.algorithm =
      blocks.size() <= kMaxLocal ? LayoutAlgorithm::kLocal : LayoutAlgorithm::kGreedy;
  options.greedy_limit = kGreedyVisits;
  options.local_limit = moves;
  const LayoutResult result = solve_layout(problem, options);
  if (result.offsets_bytes.size() != blocks.size()) return;
  for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i].address = result.offsets_bytes[i];
}

}  // namespace

void place_instances(const graph::Graph& graph, Plan& plan, std::int64_t moves) {
  Blocks made = BlockMaker(graph, plan).run();
  plan.peak_bytes = load_of(made.blocks, plan.steps.size());
  place_in_time_order(made.blocks);
  if (top_of(made.blocks) > plan.peak_bytes + plan.peak_bytes / kGoodEnough &&
      made.blocks.size() <= kMaxEngine) {
    std::vector<Block> other = made.blocks;
    place_by_engine(other, moves);
    if (top_of(other) < top_of(made.blocks)) made.blocks = std::move(other);
  }
  plan.arena_bytes = top_of(made.blocks);
  for (std::size_t i = 0; i < plan.instances.size(); ++i) {
    const std::int32_t block = made.of_instance[i];
    plan.instances[i].address = block < 0 ? 0 : made.blocks[std::size_t(block)].address;
  }
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const std::int32_t block = made.of_workspace[i];
    plan.steps[i].workspace_address = block < 0 ? 0 : made.blocks[std::size_t(block)].address;
  }
}

}  // namespace plimsoll::plan
