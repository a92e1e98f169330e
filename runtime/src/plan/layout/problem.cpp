// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/bytes.h"
#include "plimsoll/base/error.h"
#include "plimsoll/plan/layout.h"

#include "plan/layout/pieces.h"

namespace plimsoll::plan {
namespace {

std::string name_of(const LayoutProblem& problem, std::size_t index) {
  if (index < problem.names.size()) return fmt::format("buffer '{}'", problem.names[index]);
  return fmt::format("buffer {}", index);
}

void check_gaps(const LayoutProblem& problem, std::size_t index) {
  const LayoutBuffer& b = problem.buffers[index];
  std::int64_t last_end = b.lifetime.begin;
  for (const LayoutGap& gap : layout_detail::sorted_gaps(b)) {
    if (gap.time.end < gap.time.begin || gap.time.begin < last_end || gap.time.end > b.lifetime.end)
      throw InvalidArgument(fmt::format(
          "{}: gap [{}, {}) has to lie in the lifetime [{}, {}) and apart from other gaps",
          name_of(problem, index), gap.time.begin, gap.time.end, b.lifetime.begin, b.lifetime.end));
    if (!gap.kept.empty() && (gap.kept.begin < 0 || gap.kept.end > b.size_bytes))
      throw InvalidArgument(
          fmt::format("{}: the bytes kept in a gap, [{}, {}), have to lie in [0, {})",
                      name_of(problem, index), gap.kept.begin, gap.kept.end, b.size_bytes));
    last_end = gap.time.end;
  }
}

void check_buffer(const LayoutProblem& problem, std::size_t index) {
  const LayoutBuffer& b = problem.buffers[index];
  if (b.size_bytes < 0)
    throw InvalidArgument(
        fmt::format("{}: size {} has to be 0 or more", name_of(problem, index), b.size_bytes));
  if (b.lifetime.end < b.lifetime.begin)
    throw InvalidArgument(fmt::format("{}: lifetime [{}, {}) ends before it begins",
                                      name_of(problem, index), b.lifetime.begin, b.lifetime.end));
  if (b.alignment_bytes < 1)
    throw InvalidArgument(fmt::format("{}: alignment {} has to be 1 or more",
                                      name_of(problem, index), b.alignment_bytes));
  if (b.fixed_offset_bytes < kNoOffset)
    throw InvalidArgument(fmt::format("{}: fixed offset {} has to be 0 or more, or -1 for none",
                                      name_of(problem, index), b.fixed_offset_bytes));
  if (b.fixed_offset_bytes > 0 && b.fixed_offset_bytes % b.alignment_bytes != 0)
    throw InvalidArgument(
        fmt::format("{}: fixed offset {} has to be a multiple of the alignment {}",
                    name_of(problem, index), b.fixed_offset_bytes, b.alignment_bytes));
  if (b.arena < 0 || static_cast<std::size_t>(b.arena) >= problem.arenas.size())
    throw InvalidArgument(fmt::format("{}: arena {} has to be in [0, {})", name_of(problem, index),
                                      b.arena, problem.arenas.size()));
  if (!b.gaps.empty()) check_gaps(problem, index);
}

void check_reserved(const LayoutProblem& problem) {
  for (std::size_t i = 0; i < problem.reserved.size(); ++i) {
    const ReservedRange& r = problem.reserved[i];
    if (r.arena < 0 || static_cast<std::size_t>(r.arena) >= problem.arenas.size() ||
        r.time.end < r.time.begin || r.addresses.begin < 0 || r.addresses.end < r.addresses.begin)
      throw InvalidArgument(fmt::format(
          "reserved range {}: time [{}, {}), addresses [{}, {}), arena {}: intervals have to run "
          "forward, addresses from 0 on, arenas lie in [0, {})",
          i, r.time.begin, r.time.end, r.addresses.begin, r.addresses.end, r.arena,
          problem.arenas.size()));
    for (std::size_t j = 0; j < i; ++j) {
      const ReservedRange& other = problem.reserved[j];
      if (other.arena == r.arena && other.time.overlaps(r.time) &&
          other.addresses.overlaps(r.addresses))
        throw InvalidArgument(
            fmt::format("reserved ranges {} and {} overlap; they have to be disjoint", j, i));
    }
  }
}

// The tallest stack anything can make, gaps for alignment included, must fit 64 bits.
void check_sum(const LayoutProblem& problem) {
  std::int64_t sum = 0;
  for (const LayoutBuffer& b : problem.buffers) {
    sum = checked_add(sum, checked_add(b.size_bytes, b.alignment_bytes));
    if (b.fixed_offset_bytes > 0) sum = checked_add(sum, b.fixed_offset_bytes);
  }
  for (const ReservedRange& r : problem.reserved) sum = checked_add(sum, r.addresses.end);
}

}  // namespace

const char* layout_status_name(LayoutStatus status) noexcept {
  switch (status) {
    case LayoutStatus::kOptimal:
      return "optimal";
    case LayoutStatus::kFeasible:
      return "feasible";
    case LayoutStatus::kInfeasible:
      return "infeasible";
    case LayoutStatus::kUnknown:
      return "unknown";
  }
  return "unknown";
}

std::int64_t LayoutResult::arena_bytes() const {
  std::int64_t sum = 0;
  for (const LayoutArenaResult& arena : arenas) sum += arena.arena_bytes;
  return sum;
}

std::int64_t LayoutResult::load_bytes() const {
  std::int64_t sum = 0;
  for (const LayoutArenaResult& arena : arenas) sum += arena.load_bytes;
  return sum;
}

std::int64_t LayoutResult::lower_bound_bytes() const {
  std::int64_t sum = 0;
  for (const LayoutArenaResult& arena : arenas) sum += arena.lower_bound_bytes;
  return sum;
}

void check_layout_problem(const LayoutProblem& problem) {
  if (!problem.names.empty() && problem.names.size() != problem.buffers.size())
    throw InvalidArgument(fmt::format("{} names for {} buffers; there have to be as many, or none",
                                      problem.names.size(), problem.buffers.size()));
  if (problem.buffers.size() + problem.reserved.size() > 1'000'000'000)
    throw InvalidArgument(fmt::format("{} buffers; there can be 1000000000",
                                      problem.buffers.size() + problem.reserved.size()));
  for (std::size_t i = 0; i < problem.arenas.size(); ++i) {
    if (problem.arenas[i].capacity_bytes < 0)
      throw InvalidArgument(fmt::format("arena {}: capacity {} has to be 0 or more", i,
                                        problem.arenas[i].capacity_bytes));
  }
  for (std::size_t i = 0; i < problem.buffers.size(); ++i) check_buffer(problem, i);
  check_reserved(problem);
  check_sum(problem);
}

std::int64_t layout_load_bytes(const LayoutProblem& problem, std::int32_t arena) {
  std::vector<std::pair<std::int64_t, std::int64_t>> events;  // (time, change); falls sort first
  const auto add = [&](Interval time, std::int64_t bytes) {
    events.emplace_back(time.begin, bytes);
    events.emplace_back(time.end, -bytes);
  };
  for (const LayoutBuffer& b : problem.buffers) {
    if (b.arena != arena) continue;
    layout_detail::for_each_piece(b,
                                  [&](Interval time, Interval kept) { add(time, kept.length()); });
  }
  for (const ReservedRange& r : problem.reserved) {
    if (r.arena == arena && !r.time.empty() && !r.addresses.empty())
      add(r.time, r.addresses.length());
  }
  std::sort(events.begin(), events.end());
  std::int64_t live = 0;
  std::int64_t load = 0;
  for (const auto& [time, change] : events) {
    live += change;
    load = std::max(load, live);
  }
  return load;
}

LayoutProblem align_layout_problem(LayoutProblem problem, std::int64_t alignment_bytes) {
  if (alignment_bytes < 1)
    throw InvalidArgument(fmt::format("alignment {} has to be 1 or more", alignment_bytes));
  const auto up = [&](std::int64_t bytes) {
    return checked_add(bytes, alignment_bytes - 1) / alignment_bytes * alignment_bytes;
  };
  for (LayoutBuffer& b : problem.buffers) {
    if (b.size_bytes > 0) b.size_bytes = up(b.size_bytes);
    b.alignment_bytes = b.alignment_bytes > 0 ? up(b.alignment_bytes) : b.alignment_bytes;
  }
  return problem;
}

}  // namespace plimsoll::plan
