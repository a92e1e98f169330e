// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/order/cut.h"

#include <algorithm>
#include <limits>

#include "max_flow.h"

namespace plimsoll::order {
namespace {

// Where operators stand relative to the one that runs.
enum class Place : std::uint8_t { kFree, kBefore, kAfter, kSelf };

std::vector<Place> places_around(const Problem& problem, std::int32_t op) {
  std::vector<Place> place(problem.op_count(), Place::kFree);
  std::vector<std::int32_t> stack;
  const auto spread = [&](const Rows& edges, Place mark) {
    stack.assign(1, op);
    while (!stack.empty()) {
      const std::int32_t o = stack.back();
      stack.pop_back();
      for (const std::int32_t n : edges[o]) {
        if (place[n] != Place::kFree) continue;
        place[n] = mark;
        stack.push_back(n);
      }
    }
  };
  place[op] = Place::kSelf;
  spread(problem.before, Place::kBefore);
  spread(problem.after, Place::kAfter);
  return place;
}

// The network whose cuts are the states in which `op` runs. Source side: has run.
class CutNetwork {
 public:
  CutNetwork(const Problem& problem, std::int32_t op)
      : problem_(problem), op_(op), place_(places_around(problem, op)), node_(place_.size(), -1) {
    fixed_bytes_ = problem.base_bytes + problem.extra[op];
    for (std::int32_t o = 0; o < problem.op_count(); ++o)
      if (place_[o] == Place::kFree) free_.push_back(o);
  }

  std::size_t free_count() const { return free_.size(); }

  // Adds what lives whatever the free operators do; the rest goes into the flow network, if given.
  void add_storages(MaxFlow* flow) {
    for (std::int32_t v = 0; v < problem_.storage_count(); ++v) add_storage(v, flow);
  }

  void add_operators(MaxFlow& flow) {
    for (const std::int32_t o : free_) node_[o] = flow.add_node();
    for (const std::int32_t o : free_)
      for (const std::int32_t p : problem_.before[o])
        if (place_[p] == Place::kFree) flow.add_arc(node_[o], node_[p], MaxFlow::kUnlimited);
  }

  std::int64_t fixed_bytes() const { return fixed_bytes_; }

  // The storages live at the cut.
  std::vector<std::int32_t> live(const MaxFlow* flow) const {
    const auto ran = [&](std::int32_t o) {
      return place_[o] == Place::kBefore ||
             (place_[o] == Place::kFree && flow != nullptr && flow->on_source_side(node_[o]));
    };
    std::vector<std::int32_t> list;
    for (std::int32_t v = 0; v < problem_.storage_count(); ++v) {
      const auto births = problem_.births[v];
      const bool own = std::find(births.begin(), births.end(), op_) != births.end();
      const bool born = births.empty() || own || std::any_of(births.begin(), births.end(), ran);
      const auto readers = problem_.readers[v];
      const bool waits = std::any_of(readers.begin(), readers.end(), [&](std::int32_t r) {
        return r == op_ ? !problem_.is_overwritten(v, r) : !ran(r);
      });
      if (born && (own || problem_.kept[v] != 0 || waits)) list.push_back(v);
    }
    return list;
  }

 private:
  struct Ends {
    bool sure = false;               // born, or read, whatever the free operators do
    std::vector<std::int32_t> free;  // otherwise: by these
  };

  Ends births_of(std::int32_t v) const {
    Ends ends;
    ends.sure = problem_.from_start(v);
    for (const std::int32_t b : problem_.births[v]) {
      if (place_[b] == Place::kSelf || place_[b] == Place::kBefore) ends.sure = true;
      if (place_[b] == Place::kFree) ends.free.push_back(b);
    }
    return ends;
  }

  Ends readers_of(std::int32_t v) const {
    Ends ends;
    ends.sure = problem_.kept[v] != 0;
    for (const std::int32_t r : problem_.readers[v]) {
      if (place_[r] == Place::kAfter || (r == op_ && !problem_.is_overwritten(v, r)))
        ends.sure = true;
      if (place_[r] == Place::kFree) ends.free.push_back(r);
    }
    return ends;
  }

  void add_storage(std::int32_t v, MaxFlow* flow) {
    if (problem_.bytes[v] == 0) return;
    const auto own = problem_.births[v];
    if (std::find(own.begin(), own.end(), op_) != own.end()) {
      fixed_bytes_ += problem_.bytes[v];  // lives while op runs, read later or not
      return;
    }
    const Ends births = births_of(v);
    const Ends readers = readers_of(v);
    if (births.sure && readers.sure) {
      fixed_bytes_ += problem_.bytes[v];
    } else if (flow != nullptr && (births.sure || !births.free.empty()) &&
               (readers.sure || !readers.free.empty())) {
      add_crossing(v, births, readers, *flow);
    }
  }

  // Costs its bytes when a birth stands on the source side and a reader on the sink side.
  void add_crossing(std::int32_t v, const Ends& births, const Ends& readers, MaxFlow& flow) {
    const std::int64_t bytes = problem_.bytes[v];
    std::int32_t from = flow.source(), to = flow.sink();
    if (!births.sure && births.free.size() == 1) from = node_[births.free[0]];
    if (!births.sure && births.free.size() > 1) {
      from = flow.add_node();
      for (const std::int32_t b : births.free) flow.add_arc(node_[b], from, MaxFlow::kUnlimited);
    }
    if (!readers.sure && readers.free.size() == 1) to = node_[readers.free[0]];
    if (!readers.sure && readers.free.size() > 1) {
      to = flow.add_node();
      for (const std::int32_t r : readers.free) flow.add_arc(to, node_[r], MaxFlow::kUnlimited);
    }
    if (from != to) flow.add_arc(from, to, bytes);
  }

  const Problem& problem_;
  std::int32_t op_;
  std::vector<Place> place_;
  std::vector<std::int32_t> node_;
  std::vector<std::int32_t> free_;
  std::int64_t fixed_bytes_ = 0;
};

}  // namespace

CutBound cut_bound(const Problem& problem, std::int32_t op, const CutOptions& options) {
  CutBound result;
  result.op = op;
  CutNetwork network(problem, op);
  const auto free_ops = static_cast<std::int64_t>(network.free_count());
  if (options.most_free_ops >= 0 && free_ops > options.most_free_ops) {
    network.add_storages(nullptr);
    result.bytes = network.fixed_bytes();
    return result;
  }
  MaxFlow flow;
  network.add_operators(flow);
  network.add_storages(&flow);
  const std::int64_t fixed = network.fixed_bytes();
  const std::int64_t enough = options.enough_bytes < 0 ? -1 : options.enough_bytes - fixed;
  result.exact = flow.run(enough, options.stop);
  result.bytes = fixed + flow.value();
  if (options.with_storages && result.exact) result.storages = network.live(&flow);
  return result;
}

}  // namespace plimsoll::order
