// SPDX-License-Identifier: Apache-2.0
#include "ilp.h"

#include <interfaces/highs_c_api.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"
#include "plimsoll/order/fusion.h"

#include "heuristics.h"
#include "resident_bound.h"

namespace plimsoll::order {
namespace {

// A variable or a constant.
struct Term {
  std::int32_t column = -1;  // -1: the constant
  double constant = 0;
};

// How many operators surely come before and after each.
struct Counts {
  explicit Counts(const Problem& problem)
      : before(closure_counts(problem, problem.before, false)),
        after(closure_counts(problem, problem.after, true)) {}

  static std::vector<std::int32_t> closure_counts(const Problem& problem, const Rows& edges,
                                                  bool backwards) {
    const std::int32_t ops = problem.op_count();
    std::vector<std::vector<bool>> reach(ops, std::vector<bool>(ops, false));
    std::vector<std::int32_t> counts(ops, 0);
    for (std::int32_t i = 0; i < ops; ++i) {
      const std::int32_t o = problem.program[backwards ? ops - 1 - i : i];
      for (const std::int32_t n : edges[o]) {
        reach[o][n] = true;
        for (std::int32_t k = 0; k < ops; ++k)
          if (reach[n][k]) reach[o][k] = true;
      }
      counts[o] = static_cast<std::int32_t>(std::count(reach[o].begin(), reach[o].end(), true));
    }
    return counts;
  }

  std::vector<std::int32_t> before, after;
};

// The program as HiGHS takes it, row by row.
class Model {
 public:
  Model(const Problem& problem, std::int64_t unit)
      : problem_(problem), ops_(problem.op_count()), unit_(unit), counts_(problem) {}

  void build(std::int64_t least, std::int64_t most) {
    peak_ = add_column(scaled(least), scaled(most), false);
    first_x_.assign(static_cast<std::size_t>(ops_) * ops_, -1);
    for (std::int32_t o = 0; o < ops_; ++o)
      for (std::int32_t t = earliest(o); t < latest(o); ++t)
        first_x_[o * ops_ + t] = add_column(0, 1, true);
    plain_ = std::int64_t{ops_} * ops_ + std::int64_t{problem_.storage_count()} * ops_ + 1;
    add_order_rows();
    for (std::int32_t t = 0; t < ops_; ++t) add_level_row(t);
  }

  std::int64_t plain_variables() const { return plain_; }
  std::int64_t variables() const { return static_cast<std::int64_t>(lower_.size()); }

  // The values that `order` gives the variables.
  std::vector<double> values_of(const std::vector<std::int32_t>& order, std::int64_t peak) const {
    std::vector<double> values(lower_.size(), 0);
    std::vector<std::int32_t> at(ops_);
    for (std::int32_t t = 0; t < ops_; ++t) at[order[t]] = t;
    const auto value = [&](Term term) {
      return term.column < 0 ? term.constant : values[term.column];
    };
    for (std::int32_t o = 0; o < ops_; ++o)
      for (std::int32_t t = earliest(o); t < latest(o); ++t)
        values[first_x_[o * ops_ + t]] = at[o] <= t ? 1 : 0;
    for (const Live& live : live_)
      for (const auto& [born, done] : live.reasons)
        values[live.column] = std::max(values[live.column], value(born) - value(done));
    values[peak_] = scaled(peak);
    return values;
  }

  std::vector<std::int32_t> order_of(const std::vector<double>& values) const {
    std::vector<std::pair<double, std::int32_t>> when;
    for (std::int32_t i = 0; i < ops_; ++i) {
      const std::int32_t o = problem_.program[i];
      double waits = earliest(o);
      for (std::int32_t t = earliest(o); t < latest(o); ++t)
        waits += 1 - std::round(values[first_x_[o * ops_ + t]]);
      when.emplace_back(waits, i);
    }
    std::sort(when.begin(), when.end());
    std::vector<std::int32_t> order;
    order.reserve(when.size());
    for (const auto& [waits, i] : when) order.push_back(problem_.program[i]);
    return order;
  }

  void pass_to(void* highs) const {
    std::vector<HighsInt> kinds(lower_.size());
    for (std::size_t i = 0; i < kinds.size(); ++i)
      kinds[i] = is_integer_[i] ? kHighsVarTypeInteger : kHighsVarTypeContinuous;
    std::vector<double> cost(lower_.size(), 0);
    cost[peak_] = 1;
    Highs_passMip(highs, static_cast<HighsInt>(lower_.size()),
                  static_cast<HighsInt>(row_lower_.size()), static_cast<HighsInt>(index_.size()),
                  kHighsMatrixFormatRowwise, kHighsObjSenseMinimize, 0, cost.data(), lower_.data(),
                  upper_.data(), row_lower_.data(), row_upper_.data(), row_start_.data(),
                  index_.data(), value_.data(), kinds.data());
  }

 private:
  struct Live {
    std::int32_t column = -1;
    std::vector<std::pair<Term, Term>> reasons;  // lives where born - done = 1
  };

  std::int32_t earliest(std::int32_t o) const { return counts_.before[o]; }
  std::int32_t latest(std::int32_t o) const { return ops_ - 1 - counts_.after[o]; }
  double scaled(std::int64_t bytes) const {
    return static_cast<double>(bytes) / static_cast<double>(unit_);
  }

  std::int32_t add_column(double lower, double upper, bool is_integer) {
    lower_.push_back(lower);
    upper_.push_back(upper);
    is_integer_.push_back(is_integer);
    return static_cast<std::int32_t>(lower_.size()) - 1;
  }

  // Whether o has run by step t.
  Term ran(std::int32_t o, std::int32_t t) const {
    if (t < earliest(o)) return {-1, 0};
    if (t >= latest(o)) return {-1, 1};
    return {first_x_[o * ops_ + t], 0};
  }

  // Rows are collected as terms, constants on the other side.
  void put(Term term, double factor) {
    if (term.column < 0) {
      shift_ += factor * term.constant;
      return;
    }
    index_.push_back(term.column);
    value_.push_back(factor);
  }
  void end_row(double lower, double upper) {
    const auto begin = row_start_.back();
    if (static_cast<std::size_t>(begin) < index_.size()) {
      row_lower_.push_back(lower - shift_);
      row_upper_.push_back(upper - shift_);
      row_start_.push_back(static_cast<HighsInt>(index_.size()));
    }
    shift_ = 0;
  }

  void add_order_rows() {
    for (std::int32_t t = 0; t < ops_; ++t) {
      for (std::int32_t o = 0; o < ops_; ++o) put(ran(o, t), 1);
      end_row(t + 1, t + 1);
      for (std::int32_t o = 0; o < ops_; ++o) {
        put(ran(o, t), 1);
        put(ran(o, t - 1), -1);
        end_row(0, kInfinity);
        for (const std::int32_t p : problem_.before[o]) {
          put(ran(p, t - 1), 1);
          put(ran(o, t), -1);
          end_row(0, kInfinity);
        }
      }
    }
  }

  // Why storage v may live at step t.
  std::vector<std::pair<Term, Term>> reasons(std::int32_t v, std::int32_t t) const {
    std::vector<Term> born;
    if (problem_.from_start(v)) born.push_back({-1, 1});
    for (const std::int32_t b : problem_.births[v]) born.push_back(ran(b, t));
    std::vector<std::pair<Term, Term>> list;
    for (const Term b : born) {
      if (problem_.kept[v] != 0) list.emplace_back(b, Term{-1, 0});
      if (problem_.kept[v] != 0) continue;
      for (const std::int32_t r : problem_.readers[v])
        list.emplace_back(b, ran(r, problem_.is_overwritten(v, r) ? t : t - 1));
    }
    if (!problem_.survives(v))
      for (const std::int32_t b : problem_.births[v]) list.emplace_back(ran(b, t), ran(b, t - 1));
    std::erase_if(list, [](const auto& reason) {
      const auto& [b, done] = reason;
      return (b.column < 0 && b.constant == 0) || (done.column < 0 && done.constant == 1);
    });
    return list;
  }

  Term life(std::int32_t v, std::int32_t t) {
    Live live;
    live.reasons = reasons(v, t);
    if (live.reasons.empty()) return {-1, 0};
    for (const auto& [b, done] : live.reasons)
      if (b.column < 0 && done.column < 0) return {-1, 1};
    // With one reason of which one side is fixed, the other side says it all.
    if (live.reasons.size() == 1 && live.reasons[0].second.column < 0) return live.reasons[0].first;
    live.column = add_column(0, 1, false);
    live_.push_back(live);
    return {live.column, 0};
  }

  void add_level_row(std::int32_t t) {
    const std::size_t first_live = live_.size();
    std::vector<std::pair<Term, double>> terms;
    for (std::int32_t v = 0; v < problem_.storage_count(); ++v)
      if (problem_.bytes[v] > 0) terms.emplace_back(life(v, t), scaled(problem_.bytes[v]));
    for (std::size_t i = first_live; i < live_.size(); ++i) {
      for (const auto& [born, done] : live_[i].reasons) {
        put({live_[i].column, 0}, 1);
        put(born, -1);
        put(done, 1);
        end_row(0, kInfinity);
      }
    }
    // A column may stand in a row once only, so the factors of one operator are added up.
    std::vector<double> factors(lower_.size(), 0);
    const auto add = [&](Term term, double factor) {
      if (term.column < 0)
        shift_ += factor * term.constant;
      else
        factors[term.column] += factor;
    };
    for (const auto& [term, factor] : terms) add(term, factor);
    for (std::int32_t o = 0; o < ops_; ++o) {
      if (problem_.extra[o] == 0) continue;
      add(ran(o, t), scaled(problem_.extra[o]));
      add(ran(o, t - 1), -scaled(problem_.extra[o]));
    }
    add({peak_, 0}, -1);
    for (std::size_t c = 0; c < factors.size(); ++c)
      if (factors[c] != 0) put({static_cast<std::int32_t>(c), 0}, factors[c]);
    end_row(-kInfinity, -scaled(problem_.base_bytes));
  }

  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

  const Problem& problem_;
  std::int32_t ops_;
  std::int64_t unit_;
  Counts counts_;
  std::int32_t peak_ = -1;
  std::int64_t plain_ = 0;
  std::vector<std::int32_t> first_x_;
  std::vector<Live> live_;
  std::vector<double> lower_, upper_, row_lower_, row_upper_, value_;
  std::vector<bool> is_integer_;
  std::vector<HighsInt> row_start_ = {0}, index_;
  double shift_ = 0;
};

struct HighsDeleter {
  void operator()(void* highs) const { Highs_destroy(highs); }
};

void ask_to_stop(int, const char*, const HighsCallbackDataOut*, HighsCallbackDataIn* in,
                 void* stopper) {
  in->user_interrupt = (*static_cast<Stopper*>(stopper))() ? 1 : 0;
}

struct Solved {
  std::vector<double> values;
  double bound = 0;
  bool optimal = false;
};

Solved solve_model(const Model& model, const std::vector<double>& start, Stopper& stopper) {
  const std::unique_ptr<void, HighsDeleter> highs(Highs_create());
  Highs_setBoolOptionValue(highs.get(), "output_flag", 0);
  Highs_setIntOptionValue(highs.get(), "threads", 1);
  Highs_setIntOptionValue(highs.get(), "random_seed", 0);
  Highs_setDoubleOptionValue(highs.get(), "mip_rel_gap", 0);
  Highs_setDoubleOptionValue(highs.get(), "mip_abs_gap", 0.5);
  model.pass_to(highs.get());
  Highs_setSolution(highs.get(), start.data(), nullptr, nullptr, nullptr);
  Highs_setCallback(highs.get(), ask_to_stop, &stopper);
  Highs_startCallback(highs.get(), kHighsCallbackMipInterrupt);
  Highs_run(highs.get());
  Solved solved;
  solved.values.resize(start.size());
  Highs_getSolution(highs.get(), solved.values.data(), nullptr, nullptr, nullptr);
  Highs_getDoubleInfoValue(highs.get(), "mip_dual_bound", &solved.bound);
  solved.optimal = Highs_getModelStatus(highs.get()) == kHighsModelStatusOptimal;
  return solved;
}

// The largest number that divides every size, so that the program's figures stay small.
std::int64_t common_unit(const Problem& problem) {
  std::int64_t unit = std::gcd(std::int64_t{0}, problem.base_bytes);
  for (const std::int64_t bytes : problem.bytes) unit = std::gcd(unit, bytes);
  for (const std::int64_t extra : problem.extra) unit = std::gcd(unit, extra);
  return std::max<std::int64_t>(unit, 1);
}

}  // namespace

void run_ilp(const Problem& problem, const Options& options, Stopper& stopper, Result& result) {
  const Fused fused = fuse(problem, options.fusion, [&stopper] { return stopper(); });
  result.fused_ops = fused.problem.op_count();
  if (result.fused_ops > options.ilp_ops)
    throw InvalidArgument(fmt::format(
        "the integer program takes at most {} operators after fusion; this graph has {}",
        options.ilp_ops, result.fused_ops));
  if (result.fused_ops == 0 || stopper()) return;
  std::vector<std::int32_t> first = greedy_order(fused.problem);
  const std::int64_t first_peak = profile(fused.problem, first).peak;
  const std::int64_t unit = common_unit(fused.problem);
  Model model(fused.problem, unit);
  model.build(resident_bound(fused.problem).bytes, first_peak);
  result.ilp_variables = model.plain_variables();
  result.ilp_variables_pruned = model.variables();
  const Solved solved = solve_model(model, model.values_of(first, first_peak), stopper);
  std::vector<std::int32_t> found = model.order_of(solved.values);
  if (!is_topological(fused.problem, found)) found = std::move(first);
  std::vector<std::int32_t> order = unfuse(fused, found);
  const std::int64_t peak = profile(problem, order).peak;
  if (peak < result.peak_bytes) {
    result.peak_bytes = peak;
    result.order = std::move(order);
  }
  // Optimal in floating point: the peak found is the bound. Otherwise the dual bound, rounded up to
  // a whole number of units after taking its tolerance off.
  const double levels = solved.bound - 1e-6 * std::max(1.0, std::abs(solved.bound));
  std::int64_t bound = result.lower_bound_bytes;
  if (solved.optimal)
    bound = result.peak_bytes;
  else if (std::isfinite(levels) && levels > 0)
    bound = std::min(static_cast<std::int64_t>(std::ceil(levels)) * unit, result.peak_bytes);
  if (bound > result.lower_bound_bytes) {
    result.lower_bound_bytes = bound;
    result.proof = Proof::kExhausted;
    result.bound_op = -1;
  }
  if (!solved.optimal) result.note = "the integer program was stopped before its optimum";
}

}  // namespace plimsoll::order
