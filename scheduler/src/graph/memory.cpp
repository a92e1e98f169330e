// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/graph/memory.h"

#include <algorithm>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"

namespace plimsoll::graph {

MemoryState::MemoryState(const Graph& graph) : graph_(&graph), waiting_(graph.storage_count()) {
  for (std::size_t i = 0; i < waiting_.size(); ++i) {
    const StorageId s(i);
    waiting_[i] = static_cast<std::int32_t>(graph.touchers(s).size());
    // Live from the start but never touched: freed at once, unless it stays to the end.
    if (graph.live_at_start(s) && (waiting_[i] > 0 || graph.live_at_end(s)))
      live_bytes_ += graph.size_bytes(s);
  }
}

StepMemory MemoryState::peek(OpId o) const {
  std::int64_t born = 0;
  std::int64_t dead = 0;
  for (const StorageId s : graph_->touched(o)) {
    if (!is_born(s)) born += graph_->size_bytes(s);
    if (waiting_[s.index()] == 1 && !graph_->live_at_end(s)) dead += graph_->size_bytes(s);
  }
  std::int64_t overwritten = 0;
  const StorageId candidate = graph_->inplace_storage(o);
  if (candidate.valid() && waiting_[candidate.index()] == 1 && !graph_->live_at_end(candidate))
    overwritten = graph_->size_bytes(candidate);
  return {live_bytes_ + born - overwritten + graph_->workspace_bytes(o), live_bytes_ + born - dead};
}

StepMemory MemoryState::run(OpId o) {
  const StepMemory step = peek(o);
  for (const StorageId s : graph_->touched(o)) --waiting_[s.index()];
  live_bytes_ = step.after_bytes;
  return step;
}

void MemoryState::undo(OpId o) {
  std::int64_t born = 0;
  std::int64_t dead = 0;
  for (const StorageId s : graph_->touched(o)) {
    if (waiting_[s.index()] == 0 && !graph_->live_at_end(s)) dead += graph_->size_bytes(s);
    ++waiting_[s.index()];
    if (!is_born(s)) born += graph_->size_bytes(s);
  }
  live_bytes_ += dead - born;
}

void check_order(const Graph& graph, OrderView order) {
  if (order.size() != graph.op_count())
    throw InvalidArgument(
        fmt::format("an order of {} ops for a graph of {}", order.size(), graph.op_count()));
  std::vector<std::uint8_t> has_run(graph.op_count(), 0);
  for (std::size_t step = 0; step < order.size(); ++step) {
    const OpId o = order[step];
    if (!o.valid() || o.index() >= graph.op_count())
      throw InvalidArgument(
          fmt::format("step {} of the order names op {}, which does not exist", step, o.value()));
    if (has_run[o.index()] != 0)
      throw InvalidArgument(fmt::format("step {} of the order runs op {} ('{}') a second time",
                                        step, o.value(), graph.name(o)));
    for (const OpId p : graph.predecessors(o)) {
      if (has_run[p.index()] == 0)
        throw InvalidArgument(
            fmt::format("step {} of the order runs op {} ('{}') before op {} ('{}'), which it "
                        "depends on",
                        step, o.value(), graph.name(o), p.value(), graph.name(p)));
    }
    has_run[o.index()] = 1;
  }
}

MemoryProfile memory_profile(const Graph& graph, OrderView order) {
  check_order(graph, order);
  MemoryState state(graph);
  MemoryProfile profile;
  profile.start_bytes = state.live_bytes();
  profile.peak_bytes = profile.start_bytes;
  profile.during_bytes.reserve(order.size());
  profile.after_bytes.reserve(order.size());
  for (const OpId o : order) {
    const StepMemory step = state.run(o);
    if (step.during_bytes > profile.peak_bytes) {
      profile.peak_bytes = step.during_bytes;
      profile.peak_step = static_cast<std::int64_t>(profile.during_bytes.size());
    }
    profile.during_bytes.push_back(step.during_bytes);
    profile.after_bytes.push_back(step.after_bytes);
  }
  return profile;
}

std::int64_t peak_bytes(const Graph& graph, OrderView order) {
  check_order(graph, order);
  MemoryState state(graph);
  std::int64_t peak = state.live_bytes();
  for (const OpId o : order) peak = std::max(peak, state.run(o).during_bytes);
  return peak;
}

std::vector<StorageId> live_storages(const Graph& graph, OrderView order, std::size_t step) {
  check_order(graph, order);
  if (step >= order.size())
    throw InvalidArgument(fmt::format("step {} of an order of {} ops", step, order.size()));
  MemoryState state(graph);
  for (std::size_t i = 0; i < step; ++i) state.run(order[i]);
  const OpId o = order[step];
  const StorageId candidate = graph.inplace_storage(o);
  std::vector<StorageId> live;
  for (std::size_t i = 0; i < graph.storage_count(); ++i) {
    const StorageId s(i);
    const std::int32_t waiting = state.waiting_touchers(s);
    const bool stays = waiting > 0 || graph.live_at_end(s);
    const bool overwritten = s == candidate && waiting == 1 && !graph.live_at_end(s);
    if (state.is_born(s) && stays && !overwritten) live.push_back(s);
  }
  for (const StorageId s : graph.touched(o)) {
    if (!state.is_born(s)) live.push_back(s);
  }
  std::sort(live.begin(), live.end());
  return live;
}

}  // namespace plimsoll::graph
