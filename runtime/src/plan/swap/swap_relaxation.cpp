// SPDX-License-Identifier: Apache-2.0
#include "swap_relaxation.h"

#include <interfaces/highs_c_api.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "plimsoll/base/error.h"

namespace plimsoll::plan::detail {
namespace {

// Columns: x per gap, y per version that pays a copy out, s per row (the bytes its gaps free).
// Rows: one balance per row of the problem, s_r - s_(r-1) = what begins at r - what ends at r, so
// that a gap has two nonzeros and not one per operator it spans; then y_v - x_g >= 0.
class RelaxationModel {
 public:
  explicit RelaxationModel(const CoverProblem& problem) : problem_(problem) {
    for (const CoverGap& gap : problem.gaps)
      unit_bytes_ = std::max(unit_bytes_, static_cast<double>(gap.size_bytes));
    number_outs();
    add_gap_columns();
    add_out_columns();
    add_row_columns();
    row_lower_.assign(static_cast<std::size_t>(row_count()), 0.0);
    row_upper_.assign(static_cast<std::size_t>(row_count()), Highs_getInfinity(nullptr));
    std::fill_n(row_upper_.begin(), problem.row_count(), 0.0);
  }

  std::optional<RelaxedCover> solve() const {
    const std::unique_ptr<void, void (*)(void*)> highs(Highs_create(), Highs_destroy);
    Highs_setBoolOptionValue(highs.get(), "output_flag", 0);
    Highs_setIntOptionValue(highs.get(), "threads", 1);
    // Prices and fractions are all that is wanted; a basis is not, and on large problems its
    // crossover costs more than the rest.
    if (problem_.gaps.size() > kSimplexGaps) {
      Highs_setStringOptionValue(highs.get(), "solver", "ipm");
      Highs_setStringOptionValue(highs.get(), "run_crossover", "off");
    }
    const auto columns = static_cast<HighsInt>(cost_.size());
    const HighsInt status =
        Highs_passLp(highs.get(), columns, row_count(), static_cast<HighsInt>(index_.size()),
                     kHighsMatrixFormatColwise, kHighsObjSenseMinimize, 0.0, cost_.data(),
                     lower_.data(), upper_.data(), row_lower_.data(), row_upper_.data(),
                     start_.data(), index_.data(), value_.data());
    PLIMSOLL_CHECK(status != kHighsStatusError, "HiGHS refuses the relaxation of a swap plan");
    if (Highs_run(highs.get()) == kHighsStatusError ||
        Highs_getModelStatus(highs.get()) != kHighsModelStatusOptimal)
      return std::nullopt;
    std::vector<double> column_value(cost_.size());
    std::vector<double> column_dual(cost_.size());
    std::vector<double> row_value(row_lower_.size());
    std::vector<double> row_dual(row_lower_.size());
    Highs_getSolution(highs.get(), column_value.data(), column_dual.data(), row_value.data(),
                      row_dual.data());
    RelaxedCover result;
    result.value_bytes = Highs_getObjectiveValue(highs.get()) * unit_bytes_;
    const auto gaps = static_cast<std::ptrdiff_t>(problem_.gaps.size());
    result.fractions.assign(column_value.begin(), column_value.begin() + gaps);
    // The reduced cost of s_r at its lower bound is the price of row r.
    result.prices.assign(column_dual.end() - problem_.row_count(), column_dual.end());
    for (double& price : result.prices) price = std::max(0.0, price);
    for (double& fraction : result.fractions) fraction = std::clamp(fraction, 0.0, 1.0);
    return result;
  }

 private:
  static constexpr std::size_t kSimplexGaps = 4000;

  HighsInt row_count() const { return problem_.row_count() + links_; }
  double scaled(std::int64_t bytes) const { return static_cast<double>(bytes) / unit_bytes_; }

  void number_outs() {
    for (const Version& version : problem_.versions)
      if (version.out_bytes > 0) links_ += version.last_gap - version.first_gap;
  }

  void begin_column(double cost, double lower, double upper) {
    start_.push_back(static_cast<HighsInt>(index_.size()));
    cost_.push_back(cost);
    lower_.push_back(lower);
    upper_.push_back(upper);
  }
  void add_entry(HighsInt row, double value) {
    index_.push_back(row);
    value_.push_back(value);
  }

  void add_gap_columns() {
    HighsInt link = problem_.row_count();
    for (const CoverGap& gap : problem_.gaps) {
      begin_column(scaled(gap.in_bytes), 0.0, 1.0);
      add_balance(gap);
      if (problem_.versions[static_cast<std::size_t>(gap.version)].out_bytes > 0)
        add_entry(link++, -1.0);
    }
  }

  // Two runs of a gap that laps the step may meet in one row; their entries add up.
  void add_balance(const CoverGap& gap) {
    const std::size_t first = index_.size();
    const double size = scaled(gap.size_bytes);
    const auto add = [&](std::int64_t row, double value) {
      const auto begin = index_.begin() + static_cast<std::ptrdiff_t>(first);
      const auto same = std::find(begin, index_.end(), static_cast<HighsInt>(row));
      if (same == index_.end())
        add_entry(static_cast<HighsInt>(row), value);
      else
        value_[static_cast<std::size_t>(same - index_.begin())] += value;
    };
    for_each_run(gap.begin, gap.end, problem_.row_count(),
                 [&](std::int64_t begin, std::int64_t end) {
                   add(begin, -size);
                   if (end < problem_.row_count()) add(end, size);
                 });
  }

  void add_out_columns() {
    HighsInt link = problem_.row_count();
    for (const Version& version : problem_.versions) {
      if (version.out_bytes == 0) continue;
      begin_column(scaled(version.out_bytes), 0.0, 1.0);
      for (std::int32_t g = version.first_gap; g < version.last_gap; ++g) add_entry(link++, 1.0);
    }
  }

  void add_row_columns() {
    for (std::int32_t row = 0; row < problem_.row_count(); ++row) {
      const std::int64_t deficit = problem_.deficit_bytes[static_cast<std::size_t>(row)];
      begin_column(0.0, scaled(deficit), Highs_getInfinity(nullptr));
      add_entry(row, 1.0);
      if (row + 1 < problem_.row_count()) add_entry(row + 1, -1.0);
    }
  }

  const CoverProblem& problem_;
  double unit_bytes_ = 1;
  HighsInt links_ = 0;
  std::vector<double> cost_, lower_, upper_, row_lower_, row_upper_, value_;
  std::vector<HighsInt> start_, index_;
};

// Prices in units of 2^-40. With sizes below 2^60, prices of at most 4 and 2^20 rows and gaps every
// sum below stays under 2^127.
constexpr int kPriceBits = 40;
constexpr double kDearest = 4.0;

__extension__ using Wide = __int128;

}  // namespace

std::optional<RelaxedCover> solve_relaxation(const CoverProblem& problem) {
  if (problem.row_count() == 0)
    return RelaxedCover{
        .value_bytes = 0, .prices = {}, .fractions = std::vector<double>(problem.gaps.size())};
  return RelaxationModel(problem).solve();
}

std::int64_t certified_bound(const CoverProblem& problem, const std::vector<double>& prices) {
  const std::size_t rows = prices.size();
  std::vector<Wide> before(rows + 1);  // sum of the prices of rows < r
  Wide total = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    const double price = std::clamp(prices[row], 0.0, kDearest);
    const Wide units = std::llround(std::ldexp(price, kPriceBits));
    before[row + 1] = before[row] + units;
    total += units * problem.deficit_bytes[row];
  }
  const auto unrolled = [&](std::int32_t row) {
    const auto r = static_cast<std::size_t>(row);
    return static_cast<Wide>(r / rows) * before[rows] + before[r % rows];
  };
  for (const Version& version : problem.versions) {
    Wide value = static_cast<Wide>(version.out_bytes) << kPriceBits;
    for (std::int32_t g = version.first_gap; g < version.last_gap; ++g) {
      const CoverGap& gap = problem.gaps[static_cast<std::size_t>(g)];
      const Wide relief = unrolled(gap.end) - unrolled(gap.begin);
      const Wide reduced =
          (static_cast<Wide>(gap.in_bytes) << kPriceBits) - relief * gap.size_bytes;
      value += std::min<Wide>(0, reduced);
    }
    total += std::min<Wide>(0, value);
  }
  if (total <= 0) return 0;
  const Wide one = static_cast<Wide>(1) << kPriceBits;
  return static_cast<std::int64_t>((total + one - 1) >> kPriceBits);
}

}  // namespace plimsoll::plan::detail
