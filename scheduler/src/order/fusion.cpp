// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/order/fusion.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "edge_rules.h"

namespace plimsoll::order {
namespace {

// Sets of readers and what they mean for a pair p;o.
class Pair {
 public:
  Pair(const Problem& problem, std::int32_t p, std::int32_t o) : problem_(problem), p_(p), o_(o) {}

  // p;o with o right after p: whenever p has run, o may follow at once, unseen below p's hill.
  bool fuses_forward() const {
    // 1. o does not raise the level: what it writes is no more than what is surely freed there.
    std::int64_t sure = 0;
    for (const std::int32_t v : problem_.operands[o_])
      if (only_read_here(v)) sure += problem_.bytes[v];
    if (kept_by(o_) > sure) return false;
    // 2. o's hill lies below p's, measured from the level before p. What p overwrites counts on
    // both sides; what else it surely frees counts before o.
    std::int64_t hill = kept_by(p_) + born_by(o_) + problem_.extra[o_];
    for (const std::int32_t v : problem_.overwrites[o_])
      if (only_read_here(v)) hill -= problem_.bytes[v];
    for (const std::int32_t v : problem_.operands[p_])
      if (problem_.readers[v].size() == 1 && problem_.kept[v] == 0 &&
          !problem_.is_overwritten(v, p_))
        hill -= problem_.bytes[v];
    return hill <= born_by(p_) + problem_.extra[p_];
  }

  // p;o with p right before o: p never lowers the level, so it may wait, and its hill hides
  // behind o's. What p frees is gone before o's hill, like what o overwrites.
  bool fuses_lazily() const {
    std::int64_t freed = 0, overwritten = 0, spared = 0;
    for (const std::int32_t v : problem_.operands[p_]) {
      if (problem_.kept[v] != 0 || reads(o_, v)) continue;
      freed += problem_.bytes[v];
      if (problem_.is_overwritten(v, p_)) overwritten += problem_.bytes[v];
    }
    if (kept_by(p_) < freed) return false;
    for (const std::int32_t v : problem_.overwrites[o_])
      if (problem_.kept[v] == 0) spared += problem_.bytes[v];
    return born_by(p_) + problem_.extra[p_] - overwritten + freed <=
           kept_by(p_) + born_by(o_) + problem_.extra[o_] - spared;
  }

  // The hill above the level before p when it is p's (forward) or o's (lazy), without what the
  // fused operator may still overwrite.
  std::int64_t forward_hill() const { return born_by(p_) + problem_.extra[p_]; }
  std::int64_t lazy_hill() const {
    std::int64_t hill = kept_by(p_) + born_by(o_) + problem_.extra[o_];
    for (const std::int32_t v : problem_.overwrites[o_])
      if (is_result(p_, v) && only_read_here(v)) hill -= problem_.bytes[v];
    return hill;
  }
  // What is gone at that hill if the fused operator is the last to read it.
  std::vector<std::int32_t> forward_overwrites() const {
    std::vector<std::int32_t> list;
    for (const std::int32_t v : problem_.overwrites[p_])
      if (!reads(o_, v)) list.push_back(v);
    return list;
  }
  std::vector<std::int32_t> lazy_overwrites() const {
    std::vector<std::int32_t> list;
    for (const std::int32_t v : problem_.overwrites[o_])
      if (!is_result(p_, v)) list.push_back(v);
    for (const std::int32_t v : problem_.operands[p_])
      if (!reads(o_, v)) list.push_back(v);
    return list;
  }

 private:
  bool reads(std::int32_t op, std::int32_t v) const {
    const auto row = problem_.operands[op];
    return std::binary_search(row.begin(), row.end(), v);
  }
  bool is_result(std::int32_t op, std::int32_t v) const {
    const auto row = problem_.results[op];
    return std::find(row.begin(), row.end(), v) != row.end();
  }
  bool only_read_here(std::int32_t v) const {
    const auto readers = problem_.readers[v];
    return problem_.kept[v] == 0 && std::all_of(readers.begin(), readers.end(),
                                                [this](auto r) { return r == p_ || r == o_; });
  }
  std::int64_t born_by(std::int32_t op) const {
    std::int64_t sum = 0;
    for (const std::int32_t v : problem_.results[op]) sum += problem_.bytes[v];
    return sum;
  }
  std::int64_t kept_by(std::int32_t op) const {
    std::int64_t sum = 0;
    for (const std::int32_t v : problem_.results[op])
      if (problem_.survives(v)) sum += problem_.bytes[v];
    return sum;
  }

  const Problem& problem_;
  std::int32_t p_;
  std::int32_t o_;
};

enum class Fit : std::uint8_t { kNone, kForward, kLazy };

// One round: pairs that fuse, each operator in at most one, and the problem they leave.
class Round {
 public:
  // `problem` is the one that `in` has led to so far.
  Round(const Problem& problem, const Fused& in, const FusionRules& rules)
      : in_(in), problem_(problem), rules_(rules) {}

  bool find_pairs() {
    const std::int32_t ops = problem_.op_count();
    partner_.assign(ops, -1);
    fit_.assign(ops, Fit::kNone);
    bool any = false;
    for (const std::int32_t o : problem_.program) {
      if (partner_[o] >= 0) continue;
      // o behind its one predecessor, or o before its one successor.
      const auto before = problem_.before[o];
      if (before.size() == 1 && join(before[0], o)) any = true;
      const auto after = problem_.after[o];
      if (partner_[o] < 0 && after.size() == 1 && join(o, after[0])) any = true;
    }
    return any;
  }

  Fused build() {
    number_groups();
    Fused out;
    out.rounds = in_.rounds + 1;
    ProblemInput input;
    input.ops = static_cast<std::int32_t>(heads_.size());
    input.base_bytes = problem_.base_bytes;
    add_storages(input, out);
    for (std::int32_t o = 0; o < problem_.op_count(); ++o)
      for (const std::int32_t s : problem_.after[o])
        if (group_[o] != group_[s]) input.precedence.emplace_back(group_[o], group_[s]);
    for (std::int32_t g = 0; g < input.ops; ++g) add_group(g, input, out);
    input.program.resize(input.ops);
    std::iota(input.program.begin(), input.program.end(), 0);
    out.problem = build_problem(std::move(input));
    return out;
  }

 private:
  bool shares_births(std::int32_t op) const {
    const auto results = problem_.results[op];
    return std::any_of(results.begin(), results.end(),
                       [this](auto v) { return problem_.births[v].size() > 1; });
  }

  bool join(std::int32_t p, std::int32_t o) {
    if (partner_[p] >= 0 || partner_[o] >= 0 || shares_births(p) || shares_births(o)) return false;
    const bool one_before = problem_.before[o].size() == 1;
    const bool one_after = problem_.after[p].size() == 1;
    const bool is_chain = one_before && one_after;
    const Pair pair(problem_, p, o);
    Fit fit = Fit::kNone;
    if (one_before && (is_chain ? rules_.chains : rules_.forward) && pair.fuses_forward())
      fit = Fit::kForward;
    else if (one_after && (is_chain ? rules_.chains : rules_.lazy) && pair.fuses_lazily())
      fit = Fit::kLazy;
    if (fit == Fit::kNone) return false;
    partner_[p] = o;
    partner_[o] = p;
    fit_[p] = fit;  // told by the first of the two
    return true;
  }

  // The first of a pair stands for it. A forward pair runs where its first stood, a lazy one where
  // its second did.
  void number_groups() {
    group_.assign(problem_.op_count(), -1);
    for (const std::int32_t o : problem_.program) {
      const std::int32_t other = partner_[o];
      const bool is_first = other < 0 || fit_[o] != Fit::kNone;
      const std::int32_t first = is_first ? o : other;
      const bool runs_here = fit_[first] == Fit::kLazy ? !is_first : is_first;
      if (!runs_here) continue;
      group_[first] = static_cast<std::int32_t>(heads_.size());
      if (partner_[first] >= 0) group_[partner_[first]] = group_[first];
      heads_.push_back(first);
    }
  }

  void add_storages(ProblemInput& input, Fused& out) {
    local_.assign(problem_.storage_count(), -1);
    for (std::int32_t v = 0; v < problem_.storage_count(); ++v) {
      const auto births = problem_.births[v];
      const std::int32_t maker = births.size() == 1 ? group_[births[0]] : -1;
      bool read_later = problem_.kept[v] != 0;
      for (const std::int32_t r : problem_.readers[v]) read_later |= group_[r] != maker;
      // Inside one group: part of its hill. Without readers it stays with an unfused operator.
      if (!read_later && (maker < 0 || partner_[heads_[maker]] >= 0)) {
        if (maker >= 0 || births.empty()) continue;
      }
      const auto local = static_cast<std::int32_t>(input.storages.size());
      local_[v] = local;
      out.storages.push_back(in_.storages[v]);
      input.storages.push_back({problem_.bytes[v], problem_.kept[v] != 0});
      for (const std::int32_t b : births) input.births.emplace_back(local, group_[b]);
      for (const std::int32_t r : problem_.readers[v])
        if (group_[r] != maker || !read_later) input.reads.emplace_back(local, group_[r]);
    }
  }

  void add_group(std::int32_t g, ProblemInput& input, Fused& out) {
    const std::int32_t p = heads_[g], o = partner_[p];
    std::vector<std::int32_t> members(in_.members[p].begin(), in_.members[p].end());
    std::int64_t extra = problem_.extra[p];
    std::vector<std::int32_t> over(problem_.overwrites[p].begin(), problem_.overwrites[p].end());
    if (o >= 0) {
      members.insert(members.end(), in_.members[o].begin(), in_.members[o].end());
      const Pair pair(problem_, p, o);
      const bool forward = fit_[p] == Fit::kForward;
      extra = forward ? pair.forward_hill() : pair.lazy_hill();
      over = forward ? pair.forward_overwrites() : pair.lazy_overwrites();
      for (const std::int32_t op : {p, o})
        for (const std::int32_t v : problem_.results[op])
          if (local_[v] >= 0) extra -= problem_.bytes[v];
    }
    out.members.add_row(members);
    input.extra.push_back(extra);
    for (const std::int32_t v : over)
      if (problem_.kept[v] == 0 && local_[v] >= 0) input.overwrites.emplace_back(g, local_[v]);
  }

  const Fused& in_;
  const Problem& problem_;
  const FusionRules& rules_;
  std::vector<std::int32_t> partner_;
  std::vector<Fit> fit_;
  std::vector<std::int32_t> group_;
  std::vector<std::int32_t> heads_;
  std::vector<std::int32_t> local_;
};

}  // namespace

Fused fuse(const Problem& problem, const FusionRules& rules, const std::function<bool()>& stop) {
  Fused fused;
  for (std::int32_t o = 0; o < problem.op_count(); ++o) fused.members.add_row({&o, 1});
  fused.storages.resize(problem.storage_count());
  std::iota(fused.storages.begin(), fused.storages.end(), 0);
  // The first round needs no copy of the problem: for the largest graphs that is what counts.
  Round first(problem, fused, rules);
  if (first.find_pairs())
    fused = first.build();
  else
    fused.problem = problem;
  while (!(stop && stop())) {
    const bool simpler = drop_edges(fused.problem, rules);
    Round round(fused.problem, fused, rules);
    if (round.find_pairs())
      fused = round.build();
    else if (!simpler)
      break;
  }
  return fused;
}

std::vector<std::int32_t> unfuse(const Fused& fused, const std::vector<std::int32_t>& order) {
  std::vector<std::int32_t> result;
  for (const std::int32_t o : order) {
    const auto members = fused.members[o];
    result.insert(result.end(), members.begin(), members.end());
  }
  return result;
}

}  // namespace plimsoll::order
