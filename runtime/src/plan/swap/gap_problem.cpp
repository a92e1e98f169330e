// SPDX-License-Identifier: Apache-2.0
#include "gap_problem.h"

#include <algorithm>

namespace plimsoll::plan::detail {
namespace {

class GapCollector {
 public:
  GapCollector(const AccessSequence& sequence, GapProblem& problem)
      : sequence_(sequence), problem_(problem) {}

  void collect(SwapStorageId storage) {
    const StorageLife& life = sequence_.life(storage);
    if (life.size_bytes == 0 || life.mobility == Mobility::kImmovable) return;
    if (life.kind == StorageKind::kPersistent)
      collect_persistent(storage, life);
    else
      collect_transient(storage, life);
  }

 private:
  void collect_transient(SwapStorageId storage, const StorageLife& life) {
    const auto accesses = sequence_.accesses(storage);
    for (std::size_t k = 0; k < accesses.size(); ++k) {
      if (accesses[k].writes) begin_version(life.size_bytes);
      const bool is_last = k + 1 == accesses.size();
      const std::int64_t end = is_last ? life.death + 1 : accesses[k + 1].position;
      add_gap(storage, accesses[k].position, end, is_last ? kNeverAccessed : end);
    }
    end_version();
  }

  // Starts after the first write, so that each version's gaps stand together; the last one's go on
  // past the end of the step.
  void collect_persistent(SwapStorageId storage, const StorageLife& life) {
    const std::int64_t n = problem_.op_count;
    const auto accesses = sequence_.accesses(storage);
    const std::size_t count = accesses.size();
    const auto first_write = std::ranges::find(accesses, true, &TimedAccess::writes);
    const bool is_written = first_write != accesses.end();
    const auto start = is_written ? static_cast<std::size_t>(first_write - accesses.begin()) : 0;
    begin_version(is_written ? life.size_bytes : 0);
    if (count == 0) add_gap(storage, -1, n, kNeverAccessed);
    for (std::size_t step = 0; step < count; ++step) {
      const std::size_t k = (start + step) % count;
      if (step > 0 && accesses[k].writes) begin_version(life.size_bytes);
      const std::int64_t end =
          k + 1 == count ? accesses.front().position + n : accesses[k + 1].position;
      add_gap(storage, accesses[k].position, end, end);
    }
    end_version();
  }

  void begin_version(std::int64_t out_bytes) {
    end_version();
    const auto gap = static_cast<std::int32_t>(problem_.gaps.size());
    version_ = {.out_bytes = out_bytes, .first_gap = gap, .last_gap = gap};
  }

  void end_version() {
    version_.last_gap = static_cast<std::int32_t>(problem_.gaps.size());
    if (version_.last_gap > version_.first_gap) problem_.versions.push_back(version_);
    version_.first_gap = version_.last_gap;
  }

  // `after` and `end` count from the instance's own step.
  void add_gap(SwapStorageId storage, std::int64_t after, std::int64_t end,
               std::int64_t needed_at) {
    if (end <= after + 1) return;
    const std::int64_t n = problem_.op_count;
    const std::int64_t shift = after >= n ? n : 0;
    const std::int64_t size = sequence_.life(storage).size_bytes;
    problem_.gaps.push_back(
        {.storage = storage,
         .lap = shift > 0 ? Lap::kPreviousStep : Lap::kThisStep,
         .evict_after = after - shift,
         .needed_at = needed_at == kNeverAccessed ? kNeverAccessed : needed_at - shift,
         .begin = after + 1 - shift,
         .end = end - shift,
         .size_bytes = size,
         .in_bytes = needed_at == kNeverAccessed ? 0 : size,
         .version = static_cast<std::int32_t>(problem_.versions.size())});
  }

  const AccessSequence& sequence_;
  GapProblem& problem_;
  Version version_;
};

void sum_residents(const AccessSequence& sequence, GapProblem& problem) {
  const std::int64_t n = problem.op_count;
  RangeSums alive(n);
  RangeSums mandatory(n);
  for (std::int64_t op = 0; op < n; ++op) {
    const std::int64_t scratch = sequence.scratch_bytes(SwapOpId(static_cast<std::size_t>(op)));
    alive.add(op, op + 1, scratch);
    mandatory.add(op, op + 1, scratch);
  }
  for (std::int64_t s = 0; s < sequence.storage_count(); ++s) {
    const SwapStorageId storage(static_cast<std::size_t>(s));
    const StorageLife& life = sequence.life(storage);
    alive.add(life.birth, life.death + 1, life.size_bytes);
    if (life.mobility == Mobility::kImmovable) {
      mandatory.add(life.birth, life.death + 1, life.size_bytes);
      continue;
    }
    for (const TimedAccess& access : sequence.accesses(storage))
      mandatory.add(access.position, access.position + 1, life.size_bytes);
  }
  problem.alive_bytes = alive.sums();
  problem.mandatory_bytes = mandatory.sums();
}

// The rows that stay, as operators in increasing order.
std::vector<std::int32_t> choose_rows(const GapProblem& problem,
                                      const std::vector<std::int64_t>& deficits) {
  const auto n = static_cast<std::size_t>(problem.op_count);
  std::vector<std::int32_t> begun(n + 1);  // gaps that begin at operators < i, ends likewise
  std::vector<std::int32_t> ended(n + 1);
  for (const Gap& gap : problem.gaps) {
    ++begun[static_cast<std::size_t>(gap.begin) % n + 1];
    ++ended[static_cast<std::size_t>(gap.end) % n + 1];
  }
  for (std::size_t i = 1; i <= n; ++i) {
    begun[i] += begun[i - 1];
    ended[i] += ended[i - 1];
  }
  std::vector<std::int32_t> rows;
  for (std::size_t op = 0; op < n; ++op) {
    if (deficits[op] <= 0) continue;
    bool is_implied = false;
    while (!rows.empty()) {
      const auto last = static_cast<std::size_t>(rows.back());
      const bool none_begins = begun[op + 1] == begun[last + 1];
      const bool none_ends = ended[op + 1] == ended[last + 1];
      is_implied = none_ends && deficits[last] >= deficits[op];
      if (is_implied || !none_begins || deficits[op] < deficits[last]) break;
      rows.pop_back();
    }
    if (!is_implied) rows.push_back(static_cast<std::int32_t>(op));
  }
  return rows;
}

}  // namespace

GapProblem make_gap_problem(const AccessSequence& sequence) {
  GapProblem problem;
  problem.op_count = sequence.op_count();
  sum_residents(sequence, problem);
  const auto most = std::ranges::max_element(problem.mandatory_bytes);
  problem.minimum_budget_bytes = *most;
  problem.pinned_by = SwapOpId(static_cast<std::size_t>(most - problem.mandatory_bytes.begin()));
  GapCollector collector(sequence, problem);
  for (std::int64_t s = 0; s < sequence.storage_count(); ++s)
    collector.collect(SwapStorageId(static_cast<std::size_t>(s)));
  return problem;
}

CoverProblem make_cover_problem(const GapProblem& problem, std::int64_t budget_bytes) {
  std::vector<std::int64_t> deficits = problem.alive_bytes;
  for (std::int64_t& deficit : deficits) deficit -= budget_bytes;
  CoverProblem cover;
  cover.row_op = choose_rows(problem, deficits);
  for (const std::int32_t op : cover.row_op)
    cover.deficit_bytes.push_back(deficits[static_cast<std::size_t>(op)]);
  const std::int64_t n = problem.op_count;
  const auto rows = static_cast<std::int64_t>(cover.row_op.size());
  // The number of rows at unrolled positions < p.
  const auto rows_before = [&](std::int64_t p) {
    const auto op = static_cast<std::int32_t>(p % n);
    const auto found = std::ranges::lower_bound(cover.row_op, op);
    return static_cast<std::int32_t>(p / n * rows + (found - cover.row_op.begin()));
  };
  for (const Version& version : problem.versions) {
    Version reduced = version;
    reduced.first_gap = static_cast<std::int32_t>(cover.gaps.size());
    for (std::int32_t g = version.first_gap; g < version.last_gap; ++g) {
      const Gap& gap = problem.gaps[static_cast<std::size_t>(g)];
      const std::int32_t begin = rows_before(gap.begin);
      const std::int32_t end = rows_before(gap.end);
      if (begin == end) continue;
      cover.gaps.push_back({.begin = begin,
                            .end = end,
                            .size_bytes = gap.size_bytes,
                            .in_bytes = gap.in_bytes,
                            .version = static_cast<std::int32_t>(cover.versions.size()),
                            .source = g});
    }
    reduced.last_gap = static_cast<std::int32_t>(cover.gaps.size());
    if (reduced.last_gap > reduced.first_gap) cover.versions.push_back(reduced);
  }
  return cover;
}

}  // namespace plimsoll::plan::detail
