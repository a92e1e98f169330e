// SPDX-License-Identifier: Apache-2.0
#include "max_flow.h"

#include <algorithm>

namespace plimsoll::order {

void MaxFlow::add_arc(std::int32_t from, std::int32_t to, std::int64_t capacity) {
  added_.push_back({to, from, capacity});
}

void MaxFlow::index_arcs() {
  first_.assign(nodes_ + 1, 0);
  for (const Arc& arc : added_) {
    ++first_[arc.reverse + 1];
    ++first_[arc.to + 1];
  }
  for (std::int32_t n = 0; n < nodes_; ++n) first_[n + 1] += first_[n];
  next_.assign(first_.begin(), first_.end() - 1);
  arcs_.resize(added_.size() * 2);
  for (const Arc& arc : added_) {
    const std::int32_t forward = next_[arc.reverse]++;
    const std::int32_t backward = next_[arc.to]++;
    arcs_[forward] = {arc.to, backward, arc.room};
    arcs_[backward] = {arc.reverse, forward, 0};
  }
  added_.clear();
}

bool MaxFlow::measure_distances() {
  distance_.assign(nodes_, -1);
  queue_.assign(1, source());
  distance_[source()] = 0;
  for (std::size_t i = 0; i < queue_.size(); ++i) {
    const std::int32_t n = queue_[i];
    for (std::int32_t a = first_[n]; a < first_[n + 1]; ++a) {
      if (arcs_[a].room == 0 || distance_[arcs_[a].to] >= 0) continue;
      distance_[arcs_[a].to] = distance_[n] + 1;
      queue_.push_back(arcs_[a].to);
    }
  }
  return distance_[sink()] >= 0;
}

// Follows admissible arcs to the sink and fills the path; 0 where there is none left. Nodes that
// lead nowhere are skipped for the rest of the phase, because their `current_` arc is past the end.
std::int64_t MaxFlow::push_path() {
  path_.clear();
  std::int32_t node = source();
  while (node != sink()) {
    std::int32_t& arc = current_[node];
    while (arc < first_[node + 1] &&
           (arcs_[arc].room == 0 || distance_[arcs_[arc].to] != distance_[node] + 1))
      ++arc;
    if (arc < first_[node + 1]) {
      path_.push_back(arc);
      node = arcs_[arc].to;
      continue;
    }
    if (path_.empty()) return 0;
    node = arcs_[arcs_[path_.back()].reverse].to;
    ++current_[node];
    path_.pop_back();
  }
  std::int64_t amount = kUnlimited;
  for (const std::int32_t a : path_) amount = std::min(amount, arcs_[a].room);
  for (const std::int32_t a : path_) {
    arcs_[a].room -= amount;
    arcs_[arcs_[a].reverse].room += amount;
  }
  return amount;
}

bool MaxFlow::run(std::int64_t enough, const std::function<bool()>& stop) {
  index_arcs();
  while (measure_distances()) {
    current_.assign(first_.begin(), first_.end() - 1);
    std::int64_t rounds = 0;
    for (std::int64_t amount = push_path(); amount > 0; amount = push_path()) {
      value_ += amount;
      if (++rounds % 256 == 0 && stop && stop()) return false;
    }
    if ((enough >= 0 && value_ >= enough) || (stop && stop())) return !measure_distances();
  }
  return true;
}

}  // namespace plimsoll::order
