// SPDX-License-Identifier: Apache-2.0
// Addresses for the instances of a plan. Instances that take one another's bytes over in place are
// one block.
#include <algorithm>
#include <map>

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
  // Holes and everything up to `capacity_bytes`: the smallest that fits, taken from its low or its
  // high end; beyond the capacity the top.
  std::int64_t take_end(std::int64_t bytes, std::int64_t capacity_bytes, bool is_low) {
    if (top_ < capacity_bytes) {
      const std::int64_t from = top_;
      top_ = capacity_bytes;
      give(from, capacity_bytes - from);
    }
    const auto best = is_low ? holes_.end() : smallest(bytes);
    if (best == holes_.end()) return take(bytes);
    const auto [address, length] = *best;
    holes_.erase(best);
    if (length > bytes) holes_.emplace(address, length - bytes);
    return address + length - bytes;
  }
  // The smallest hole that fits, the lowest of equals; else the top.
  std::int64_t take(std::int64_t bytes) {
    const auto best = smallest(bytes);
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
  using Holes = std::map<std::int64_t, std::int64_t>;  // address to length

  // The smallest hole that fits, the lowest of equals; end() where none does.
  Holes::iterator smallest(std::int64_t bytes) {
    auto best = holes_.end();
    for (auto it = holes_.begin(); it != holes_.end(); ++it) {
      if (it->second < bytes) continue;
      if (best == holes_.end() || it->second < best->second) best = it;
    }
    return best;
  }

  Holes holes_;
  std::int64_t top_ = 0;
};

// In order of birth, each in the smallest hole: near-linear, for any size. `chosen` are indices.
// With a capacity, what lives for at most `short_steps` goes to the high end of its hole.
void place_in_time_order(std::vector<Block>& blocks, const std::vector<std::size_t>& chosen,
                         std::int64_t capacity_bytes = 0, std::int64_t short_steps = 0) {
  std::vector<std::size_t> by_begin = chosen;
  std::vector<std::size_t> by_end = chosen;
  std::stable_sort(by_begin.begin(), by_begin.end(), [&](std::size_t a, std::size_t b) {
    return blocks[a].steps.begin < blocks[b].steps.begin;
  });
  std::stable_sort(by_end.begin(), by_end.end(), [&](std::size_t a, std::size_t b) {
    return blocks[a].steps.end < blocks[b].steps.end;
  });
  FreeList free;
  std::size_t ended = 0;
  for (const std::size_t b : by_begin) {
    while (ended < by_end.size() && blocks[by_end[ended]].steps.end <= blocks[b].steps.begin) {
      const Block& dead = blocks[by_end[ended++]];
      free.give(dead.address, dead.bytes);
    }
    const bool is_low = blocks[b].steps.length() > short_steps;
    blocks[b].address = capacity_bytes > 0 ? free.take_end(blocks[b].bytes, capacity_bytes, is_low)
                                           : free.take(blocks[b].bytes);
  }
}

// Large blocks, and small ones that get a strip of their own: a block of a few bytes between large
// ones of like sizes makes the exact search give up, and costs it next to nothing.
struct Split {
  std::vector<std::size_t> large, small;
};
constexpr std::int64_t kSmallPart = 1024;  // of the load
constexpr std::int64_t kStripPart = 400;   // the most the strip may take

Split split_by_size(const std::vector<Block>& blocks, std::int64_t limit_bytes) {
  Split split;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].steps.empty() || blocks[i].bytes == 0) continue;
    (blocks[i].bytes <= limit_bytes ? split.small : split.large).push_back(i);
  }
  return split;
}

std::int64_t top_of(const std::vector<Block>& blocks, const std::vector<std::size_t>& chosen) {
  std::int64_t top = 0;
  for (const std::size_t i : chosen) top = std::max(top, blocks[i].address + blocks[i].bytes);
  return top;
}

// Blocks up to which the layout engine is asked.
constexpr std::size_t kMaxEngine = 20000;
constexpr std::size_t kMaxSearch = 4000;  // beyond it the greedy suite alone
constexpr std::int64_t kGreedyVisits = 100'000;
constexpr std::int64_t kVisitsOfNode = 200;
constexpr std::int64_t kQuickPart = 4;
constexpr std::int64_t kLongestShort = 512;

void place_by_engine(std::vector<Block>& blocks, const std::vector<std::size_t>& chosen,
                     std::int64_t capacity_bytes, std::int64_t nodes) {
  LayoutProblem problem;
  problem.arenas[0].capacity_bytes = capacity_bytes;
  problem.buffers.reserve(chosen.size());
  for (const std::size_t i : chosen) {
    LayoutBuffer buffer;
    buffer.lifetime = blocks[i].steps;
    buffer.size_bytes = blocks[i].bytes;
    problem.buffers.push_back(std::move(buffer));
  }
  LayoutOptions options;
  options.algorithm =
      chosen.size() <= kMaxSearch ? LayoutAlgorithm::kSearch : LayoutAlgorithm::kGreedy;
  options.greedy_limit = chosen.size() <= kMaxSearch ? kGreedyVisits : kVisitsOfNode * nodes;
  options.node_limit = nodes;
  const LayoutResult result = solve_layout(problem, options);
  if (result.offsets_bytes.size() != chosen.size()) return;
  for (std::size_t i = 0; i < chosen.size(); ++i)
    blocks[chosen[i]].address = result.offsets_bytes[i];
}

// Returns the top.
std::int64_t place_blocks(std::vector<Block>& blocks, std::int64_t load,
                          std::int64_t alignment_bytes, const PlacementOptions& options) {
  std::int64_t limit = load / kSmallPart;
  Split split = split_by_size(blocks, limit);
  place_in_time_order(blocks, split.small);
  while (limit > 0 && top_of(blocks, split.small) > load / kStripPart) {
    split = split_by_size(blocks, limit /= 4);
    place_in_time_order(blocks, split.small);
  }
  const std::int64_t strip = top_of(blocks, split.small);
  place_in_time_order(blocks, split.large);
  std::int64_t top = top_of(blocks, split.large);
  const std::int64_t aim = std::max(options.aim_bytes, load + load / kStripPart) - strip;
  for (std::int64_t steps = 4; top > aim && steps <= kLongestShort; steps *= 2) {
    std::vector<Block> other = blocks;
    place_in_time_order(other, split.large, aim - aim % alignment_bytes, steps);
    if (top_of(other, split.large) < top) blocks = std::move(other);
    top = top_of(blocks, split.large);
  }
  if (top > aim && options.nodes > 0 && split.large.size() <= kMaxEngine) {
    // With a capacity the search looks for nothing above it: quick where it succeeds.
    for (const auto& [capacity, nodes] :
         {std::pair(aim, options.nodes / kQuickPart), std::pair(kUnlimitedBytes, options.nodes)}) {
      std::vector<Block> other = blocks;
      place_by_engine(other, split.large, capacity, nodes);
      if (top_of(other, split.large) < top) blocks = std::move(other);
      top = top_of(blocks, split.large);
      if (top <= aim) break;
    }
  }
  for (const std::size_t i : split.large) blocks[i].address += strip;
  return top + strip;
}

}  // namespace

void place_instances(const graph::Graph& graph, Plan& plan, const PlacementOptions& options) {
  Blocks made = BlockMaker(graph, plan).run();
  plan.live_bytes = load_of(made.blocks, plan.steps.size());
  plan.arena_bytes = place_blocks(made.blocks, plan.live_bytes, plan.alignment_bytes, options);
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
