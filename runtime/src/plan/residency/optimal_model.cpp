// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "plimsoll/base/bytes.h"

#include "optimal.h"

namespace plimsoll::plan {

using graph::OpId;
using graph::StorageId;
using Terms = MixedProgram::Terms;

OptimalModel::OptimalModel(const Problem& problem, const OptimalOptions& options)
    : it_(problem),
      options_(options),
      time_unit_ns_(options.most_ns),
      byte_unit_(std::max(1.0, static_cast<double>(options.budget_bytes) / 1000)) {
  for (std::size_t s = 0; s < it_.bytes.size(); ++s)
    is_movable_.push_back(!it_.graph->live_at_start(StorageId(s)) && !it_.uses[s].empty());
  add_columns();
  for (std::size_t t = 0; t < stages(); ++t) {
    add_presence(t);
    add_needs(t);
    add_several_writers(t);
    add_bytes(t);
    add_host_copies(t);
    add_compute_times(t);
    add_copy_times(t);
    add_waits_for_fetches(t);
  }
}

std::size_t OptimalModel::first_write(std::size_t s) const {
  const auto writers = it_.writers[s];
  return writers.empty() ? stages() : std::size_t(it_.position[writers.front().index()]);
}
std::size_t OptimalModel::last_write_before(std::size_t s, std::size_t t) const {
  std::size_t last = 0;
  for (const OpId w : it_.writers[s])
    if (std::size_t(it_.position[w.index()]) < t) last = std::size_t(it_.position[w.index()]);
  return last;
}
bool OptimalModel::may_run_again(std::size_t k, std::size_t t) const {
  for (const Touch& touch : it_.touches[it_.order[k].index()])
    if (touch.writes && is_movable(touch.storage.index()) &&
        it_.expiry[touch.storage.index()] >= static_cast<std::int32_t>(t))
      return true;
  return false;
}
bool OptimalModel::is_used_after(std::size_t s, std::size_t t) const {
  return it_.last_use(StorageId(s)) > static_cast<std::int64_t>(t) ||
         it_.graph->live_at_end(StorageId(s));
}
bool OptimalModel::can_be_held(std::size_t s, std::size_t t) const {
  return is_movable(s) && first_write(s) <= t;
}
double OptimalModel::copy_time(std::size_t s, Stream stream) const {
  return in_time(it_.device->copy_ns(it_.graph->size_bytes(StorageId(s)), stream, Tier::kHost));
}

void OptimalModel::add_stage_columns(std::size_t t) {
  const std::size_t storages = it_.bytes.size();
  const bool copies = it_.device->can_copy();
  again_.emplace_back(stages(), -1);
  fetch_.emplace_back(storages, -1);
  offload_.emplace_back(storages, -1);
  enters_.emplace_back(storages, -1);
  runs_.emplace_back();
  for (std::size_t k = 0; k < t; ++k) {
    if (!may_run_again(k, t)) continue;
    again_[t][k] = program_.add_binary();
    runs_[t].push_back(k);
  }
  runs_[t].push_back(t);
  for (std::size_t s = 0; s < storages; ++s) {
    if (!is_movable(s) || first_write(s) > t || it_.bytes[s] == 0) continue;
    if (first_write(s) < t) enters_[t][s] = program_.add_real(0, 1);
    if (!copies || !is_used_after(s, t)) continue;
    offload_[t][s] = program_.add_binary();
  }
  for (std::size_t s = 0; s < storages && copies && t > 1; ++s)
    if (enters_[t][s] >= 0 && is_used_after(s, t - 1)) fetch_[t][s] = program_.add_binary();
  present_.emplace_back();
  for (std::size_t i = 0; i < runs_[t].size(); ++i) {
    present_[t].emplace_back(storages, -1);
    for (std::size_t s = 0; s < storages; ++s)
      if (can_be_held(s, t)) present_[t][i][s] = program_.add_real(0, 1);
  }
  for (Columns* times : {&start_, &main_, &out_, &in_})
    times->push_back(program_.add_real(0, late_));
}

void OptimalModel::add_columns() {
  for (std::size_t t = 0; t < stages(); ++t) add_stage_columns(t);
  const int total = program_.add_real(in_time(it_.total_ns) * (1 - 1e-9), late_);
  program_.minimise(total);
  program_.add_row({{total, 1}, {main_.back(), -1}},
                   in_time(it_.cost_ns[it_.order.back().index()]));
  program_.add_row({{total, 1}, {out_.back(), -1}}, 0);
  program_.add_row({{total, 1}, {in_.back(), -1}}, 0);
}

// Bytes are there while they were there before, or have been fetched, or are being made.
void OptimalModel::add_presence(std::size_t t) {
  for (std::size_t s = 0; s < it_.bytes.size(); ++s) {
    if (!can_be_held(s, t)) continue;
    const std::size_t birth = first_write(s);
    if (enters_[t][s] >= 0)
      program_.add_row({{present_[t - 1].back()[s], 1}, {enters_[t][s], -1}}, 0);
    for (std::size_t i = 0; i < runs_[t].size(); ++i) {
      Terms row = {{present_[t][i][s], -1}};
      if (i > 0) row.emplace_back(present_[t][i - 1][s], 1);
      if (i == 0 && enters_[t][s] >= 0) row.emplace_back(enters_[t][s], 1);
      if (i == 0 && fetch_[t][s] >= 0) row.emplace_back(fetch_[t][s], 1);
      if (runs_[t][i] == birth && birth < t) row.emplace_back(again_[t][birth], 1);
      // Storages of no bytes are always at hand.
      const bool is_free = (birth == t && runs_[t][i] == t) || (it_.bytes[s] == 0 && birth < t);
      program_.add_row(row, is_free ? -1 : 0);
    }
  }
}

void OptimalModel::add_needs(std::size_t t) {
  for (std::size_t i = 0; i < runs_[t].size(); ++i) {
    const std::size_t k = runs_[t][i];
    for (const Touch& touch : it_.touches[it_.order[k].index()]) {
      const std::size_t s = touch.storage.index();
      if (!is_movable(s)) continue;
      if (k == t) {
        program_.add_row({{present_[t][i][s], 1}}, 1);
      } else {
        program_.add_row({{present_[t][i][s], 1}, {again_[t][k], -1}}, 0);
      }
    }
  }
  if (t + 1 < stages()) return;
  for (std::size_t s = 0; s < it_.bytes.size(); ++s)
    if (is_movable(s) && it_.graph->live_at_end(StorageId(s)))
      program_.add_row({{present_[t].back()[s], 1}}, 1);
}

// What several ops wrote is made again by all of them, and only where it is not there.
void OptimalModel::add_several_writers(std::size_t t) {
  for (std::size_t s = 0; s < it_.bytes.size(); ++s) {
    const auto writers = it_.writers[s];
    if (!can_be_held(s, t) || writers.size() < 2 || first_write(s) >= t) continue;
    const int first = again_[t][first_write(s)];
    bool is_possible = first >= 0;
    for (const OpId w : writers) {
      const auto k = std::size_t(it_.position[w.index()]);
      is_possible = is_possible && (k >= t || again_[t][k] >= 0);
    }
    int last = -1;
    for (const OpId w : writers) {
      const auto k = std::size_t(it_.position[w.index()]);
      if (k >= t || again_[t][k] < 0) continue;
      if (!is_possible) {
        program_.add_row({{again_[t][k], -1}}, 0);
        continue;
      }
      program_.add_row({{again_[t][k], 1}, {first, -1}}, 0);
      program_.add_row({{again_[t][k], -1}, {first, 1}}, 0);
      last = again_[t][k];
    }
    if (last < 0) continue;
    Terms row = {{first, -1}};
    if (enters_[t][s] >= 0) row.emplace_back(enters_[t][s], -1);
    if (fetch_[t][s] >= 0) row.emplace_back(fetch_[t][s], -1);
    program_.add_row(row, -1);
    // From the first writer to the last it stays.
    bool is_inside = false;
    for (std::size_t i = 0; i < runs_[t].size(); ++i) {
      const bool begins = runs_[t][i] == first_write(s);
      if (is_inside) program_.add_row({{present_[t][i][s], 1}, {first, -1}}, 0);
      is_inside = (is_inside || begins) && again_[t][runs_[t][i]] != last;
    }
  }
}

// What is there all the while and cannot be moved.
std::int64_t OptimalModel::fixed_bytes(std::size_t t) const {
  const graph::Graph& graph = *it_.graph;
  std::int64_t fixed = 0;
  for (std::size_t s = 0; s < it_.bytes.size(); ++s) {
    const bool is_there = !is_movable(s) && graph.live_at_start(StorageId(s)) &&
                          (graph.live_at_end(StorageId(s)) ||
                           it_.last_use(StorageId(s)) >= static_cast<std::int64_t>(t));
    if (is_there) fixed += it_.bytes[s];
  }
  return fixed;
}

// A second result that is there already is written beside it and thrown away.
void OptimalModel::add_second_results(std::size_t t, std::size_t i, Terms& row) {
  const std::size_t k = runs_[t][i];
  for (const Touch& touch : it_.touches[it_.order[k].index()]) {
    const std::size_t s = touch.storage.index();
    if (!touch.writes || !is_movable(s) || it_.bytes[s] == 0 || it_.writers[s].size() > 1) continue;
    Terms twice = {{program_.add_real(0, 1), 1}, {again_[t][k], -1}};
    const int extra = twice.front().first;
    if (i > 0) twice.emplace_back(present_[t][i - 1][s], -1);
    if (i == 0 && enters_[t][s] >= 0) twice.emplace_back(enters_[t][s], -1);
    program_.add_row(twice, -1);
    row.emplace_back(extra, -static_cast<double>(it_.bytes[s]) / byte_unit_);
  }
}

void OptimalModel::add_bytes(std::size_t t) {
  const graph::Graph& graph = *it_.graph;
  const std::int64_t fixed = fixed_bytes(t);
  const OpId now = it_.order[t];
  const StorageId given = graph.inplace_storage(now);
  const bool vanishes = given.valid() && !graph.live_at_end(given) &&
                        it_.last_use(given) == static_cast<std::int64_t>(t);
  for (std::size_t i = 0; i < runs_[t].size(); ++i) {
    const std::size_t k = runs_[t][i];
    const OpId o = it_.order[k];
    Terms row;
    for (std::size_t s = 0; s < it_.bytes.size(); ++s)
      if (present_[t][i][s] >= 0 && it_.bytes[s] > 0)
        row.emplace_back(present_[t][i][s], -static_cast<double>(it_.bytes[s]) / byte_unit_);
    auto room = options_.budget_bytes - fixed;
    const std::int64_t workspace =
        align_up(it_.workspace_bytes[o.index()], it_.device->alignment_bytes);
    if (k == t) {
      room -= workspace;
      if (vanishes) room += it_.bytes[given.index()];
    } else {
      if (workspace > 0)
        row.emplace_back(again_[t][k], -static_cast<double>(workspace) / byte_unit_);
      add_second_results(t, i, row);
    }
    program_.add_row(row, -static_cast<double>(room) / byte_unit_);
  }
}

void OptimalModel::add_host_copies(std::size_t t) {
  for (std::size_t s = 0; s < it_.bytes.size(); ++s) {
    if (offload_[t][s] >= 0)
      program_.add_row({{present_[t].back()[s], 1}, {offload_[t][s], -1}}, 0);
    if (fetch_[t][s] < 0) continue;
    Terms row = {{fetch_[t][s], -1}};
    for (std::size_t u = last_write_before(s, t); u < t; ++u)
      if (offload_[u][s] >= 0) row.emplace_back(offload_[u][s], 1);
    program_.add_row(row, 0);
  }
}

void OptimalModel::add_compute_times(std::size_t t) {
  if (t > 0)
    program_.add_row({{start_[t], 1}, {main_[t - 1], -1}},
                     in_time(it_.cost_ns[it_.order[t - 1].index()]));
  Terms row = {{main_[t], 1}, {start_[t], -1}};
  for (const std::size_t k : runs_[t])
    if (k < t) row.emplace_back(again_[t][k], -in_time(it_.cost_ns[it_.order[k].index()]));
  program_.add_row(row, 0);
  // Bytes that a copy out leaves are there for others when it has ended.
  for (std::size_t u = 0; u < t; ++u)
    for (std::size_t s = 0; s < it_.bytes.size(); ++s)
      if (offload_[u][s] >= 0)
        program_.add_row({{start_[t], 1},
                          {out_[u], -1},
                          {offload_[u][s], -late_},
                          {present_[t].front()[s], late_}},
                         -late_);
}

void OptimalModel::add_copy_times(std::size_t t) {
  const std::size_t storages = it_.bytes.size();
  Terms out, in;
  for (std::size_t s = 0; s < storages; ++s) {
    if (offload_[t][s] >= 0) out.emplace_back(offload_[t][s], -copy_time(s, Stream::kCopyOut));
    if (fetch_[t][s] >= 0) in.emplace_back(fetch_[t][s], -copy_time(s, Stream::kCopyIn));
  }
  out.emplace_back(out_[t], 1);
  in.emplace_back(in_[t], 1);
  for (std::size_t s = 0; s < storages; ++s) {
    if (offload_[t][s] >= 0) {
      Terms row = out;
      row.emplace_back(main_[t], -1);
      row.emplace_back(offload_[t][s], -late_);
      program_.add_row(row, in_time(it_.cost_ns[it_.order[t].index()]) - late_);
    }
    if (fetch_[t][s] < 0) continue;
    Terms row = in;
    row.emplace_back(main_[t - 1], -1);
    row.emplace_back(fetch_[t][s], -late_);
    program_.add_row(row, in_time(it_.cost_ns[it_.order[t - 1].index()]) - late_);
    for (std::size_t u = 0; u < t; ++u)
      if (offload_[u][s] >= 0)
        program_.add_row({{in_[t], 1},
                          {out_[u], -1},
                          {fetch_[t][s], -copy_time(s, Stream::kCopyIn) - late_},
                          {offload_[u][s], -late_}},
                         -2 * late_);
  }
  if (t > 0) out.emplace_back(out_[t - 1], -1);
  if (t > 0) in.emplace_back(in_[t - 1], -1);
  program_.add_row(out, 0);
  program_.add_row(in, 0);
}

void OptimalModel::add_waits_for_fetches(std::size_t t) {
  for (const std::size_t k : runs_[t]) {
    for (const Touch& touch : it_.touches[it_.order[k].index()]) {
      const std::size_t s = touch.storage.index();
      if (!touch.reads) continue;
      for (std::size_t u = 0; u <= t; ++u) {
        if (fetch_[u][s] < 0) continue;
        if (k == t) {
          program_.add_row({{main_[t], 1}, {in_[u], -1}, {fetch_[u][s], -late_}}, -late_);
        } else {
          program_.add_row(
              {{start_[t], 1}, {in_[u], -1}, {fetch_[u][s], -late_}, {again_[t][k], -late_}},
              -2 * late_);
        }
      }
    }
  }
}

}  // namespace plimsoll::plan
