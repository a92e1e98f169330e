// SPDX-License-Identifier: Apache-2.0
#include "row_prices.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace plimsoll::plan::detail {
namespace {

class VolumeSearch {
 public:
  VolumeSearch(const CoverProblem& problem, double known_bytes)
      : problem_(problem), known_bytes_(known_bytes) {
    const auto rows = static_cast<std::size_t>(problem.row_count());
    prices_.assign(rows, 0.0);
    covered_.assign(rows, 0.0);
    differences_.assign(3 * rows + 1, 0.0);
    fractions_.assign(problem.gaps.size(), 0.0);
    chosen_.assign(problem.gaps.size(), 0);
    best_.prices = prices_;
  }

  RowPrices run(int rounds) {
    for (int round = 0; round < rounds; ++round) {
      const double bound = evaluate();
      average(round == 0 ? 1.0 : kMemory);
      note(bound);
      if (!step()) break;
    }
    best_.fractions = fractions_;
    return std::move(best_);
  }

 private:
  static constexpr double kMemory = 0.02;  // weight of the newest choice in the average
  static constexpr int kPatience = 20;     // rounds without a better bound before steps shrink

  // Chooses per version what is worth its copies at the current prices; returns the Lagrangian.
  double evaluate() {
    const std::vector<double> relief = reliefs(problem_, prices_);
    double bound = 0;
    for (std::size_t row = 0; row < prices_.size(); ++row)
      bound += prices_[row] * static_cast<double>(problem_.deficit_bytes[row]);
    for (const Version& version : problem_.versions) {
      const auto first = static_cast<std::size_t>(version.first_gap);
      const auto last = static_cast<std::size_t>(version.last_gap);
      double value = static_cast<double>(version.out_bytes);
      for (std::size_t g = first; g < last; ++g) {
        const double reduced = reduced_in(g, relief);
        chosen_[g] = reduced < 0;
        value += std::min(0.0, reduced);
      }
      if (value >= 0)
        for (std::size_t g = first; g < last; ++g) chosen_[g] = 0;
      bound += std::min(0.0, value);
    }
    return bound;
  }

  double reduced_in(std::size_t gap, const std::vector<double>& relief) const {
    const CoverGap& g = problem_.gaps[gap];
    return static_cast<double>(g.in_bytes) - static_cast<double>(g.size_bytes) * relief[gap];
  }

  void average(double weight) {
    for (std::size_t g = 0; g < fractions_.size(); ++g)
      fractions_[g] += weight * (static_cast<double>(chosen_[g]) - fractions_[g]);
    sum_covered();
  }

  // covered_ = bytes that the averaged choice frees, per row; unrolled, then folded.
  void sum_covered() {
    const std::size_t rows = covered_.size();
    std::ranges::fill(differences_, 0.0);
    for (std::size_t g = 0; g < fractions_.size(); ++g) {
      const CoverGap& gap = problem_.gaps[g];
      const double bytes = fractions_[g] * static_cast<double>(gap.size_bytes);
      differences_[static_cast<std::size_t>(gap.begin)] += bytes;
      differences_[static_cast<std::size_t>(gap.end)] -= bytes;
    }
    std::ranges::fill(covered_, 0.0);
    double sum = 0;
    for (std::size_t lap = 0; lap < 3; ++lap)
      for (std::size_t row = 0; row < rows; ++row) {
        sum += differences_[lap * rows + row];
        covered_[row] += sum;
      }
  }

  void note(double bound) {
    if (bound > best_.bound_bytes) {
      if (bound > best_.bound_bytes * 1.0001) stalled_ = 0;
      best_.bound_bytes = bound;
      best_.prices = prices_;
    } else if (++stalled_ >= kPatience) {
      stalled_ = 0;
      scale_ *= 0.66;
    }
  }

  // Moves from the best prices along what the averaged choice lacks. False where it lacks nothing.
  bool step() {
    double norm = 0;
    for (std::size_t row = 0; row < covered_.size(); ++row) {
      const double lack = lacking(row);
      if (lack > 0 || best_.prices[row] > 0) norm += lack * lack;
    }
    if (norm <= 0 || known_bytes_ <= best_.bound_bytes) return false;
    const double length = scale_ * (known_bytes_ * 1.01 - best_.bound_bytes) / norm;
    for (std::size_t row = 0; row < covered_.size(); ++row)
      prices_[row] = std::max(0.0, best_.prices[row] + length * lacking(row));
    return true;
  }

  double lacking(std::size_t row) const {
    return static_cast<double>(problem_.deficit_bytes[row]) - covered_[row];
  }

  const CoverProblem& problem_;
  double known_bytes_;
  double scale_ = 1.0;
  int stalled_ = 0;
  std::vector<double> prices_;
  std::vector<double> covered_;
  std::vector<double> differences_;
  std::vector<double> fractions_;
  std::vector<char> chosen_;
  RowPrices best_;
};

}  // namespace

std::vector<double> reliefs(const CoverProblem& problem, const std::vector<double>& prices) {
  const std::size_t rows = prices.size();
  // Sum of the prices of unrolled rows < r; a gap ends within three laps.
  std::vector<double> before(3 * rows + 1);
  for (std::size_t row = 0; row < 3 * rows; ++row)
    before[row + 1] = before[row] + prices[row % rows];
  std::vector<double> result;
  result.reserve(problem.gaps.size());
  for (const CoverGap& gap : problem.gaps)
    result.push_back(before[static_cast<std::size_t>(gap.end)] -
                     before[static_cast<std::size_t>(gap.begin)]);
  return result;
}

RowPrices price_rows(const CoverProblem& problem, double known_bytes, int rounds) {
  return VolumeSearch(problem, known_bytes).run(rounds);
}

}  // namespace plimsoll::plan::detail
