// SPDX-License-Identifier: Apache-2.0
#include <interfaces/highs_c_api.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "choose.h"

namespace plimsoll::plan {
namespace {

constexpr int kMaxRounds = 40;
constexpr int kCutsPerRound = 12;
constexpr double kScaleNs = 1e6;  // the program counts milliseconds and MiB
constexpr double kScaleBytes = 1048576.0;

struct HighsDeleter {
  void operator()(void* highs) const { Highs_destroy(highs); }
};

// minimise T
//   T >= total + sum drop cost x_d,   T >= copies out,   T >= copies in,   x_d + x_o <= 1
//   for every cut position: sum bytes (x_d + x_o) over the gaps across it >= curve - target
class Program {
 public:
  Program(const Problem& problem, const std::vector<double>& drop_ns, std::int64_t target_bytes,
          bool may_recompute, bool may_offload)
      : it_(problem),
        drop_ns_(drop_ns),
        target_bytes_(target_bytes),
        may_recompute_(may_recompute),
        may_offload_(may_offload && problem.device->can_copy()),
        highs_(Highs_create()) {
    Highs_setBoolOptionValue(highs_.get(), "output_flag", 0);
    Highs_setIntOptionValue(highs_.get(), "threads", 1);
  }

  LinearChoice run() {
    add_columns();
    add_rows();
    LinearChoice result;
    for (int round = 0; round < kMaxRounds; ++round) {
      if (Highs_run(highs_.get()) == kHighsStatusError ||
          Highs_getModelStatus(highs_.get()) != kHighsModelStatusOptimal)
        return result;
      read_solution();
      if (!add_cuts()) {
        result.solved = true;
        break;
      }
    }
    result.bound_ns = Highs_getObjectiveValue(highs_.get()) * kScaleNs;
    result.decisions.assign(it_.gaps.size(), Choice::kKeep);
    for (std::size_t g = 0; g < it_.gaps.size(); ++g) {
      const double dropped = value(drop_column_[g]);
      const double offloaded = value(offload_column_[g]);
      if (dropped + offloaded < 0.5) continue;
      result.decisions[g] = dropped >= offloaded ? Choice::kDrop : Choice::kOffload;
    }
    return result;
  }

 private:
  double value(int column) const { return column < 0 ? 0 : solution_[std::size_t(column)]; }
  double bytes(std::size_t g) const {
    return static_cast<double>(it_.bytes[it_.gaps[g].storage.index()]);
  }

  void add_columns() {
    const double infinity = Highs_getInfinity(highs_.get());
    Highs_addCol(highs_.get(), 1, 0, infinity, 0, nullptr, nullptr);
    columns_ = 1;
    drop_column_.assign(it_.gaps.size(), -1);
    offload_column_.assign(it_.gaps.size(), -1);
    std::vector<std::int32_t> above(it_.curve_bytes.size() + 1);  // prefix counts
    for (std::size_t i = 0; i < it_.curve_bytes.size(); ++i)
      above[i + 1] = above[i] + (it_.curve_bytes[i] > target_bytes_ ? 1 : 0);
    for (std::size_t g = 0; g < it_.gaps.size(); ++g) {
      const Gap& gap = it_.gaps[g];
      if (above[std::size_t(gap.to)] == above[std::size_t(gap.from) + 1]) continue;
      if (may_recompute_ && std::isfinite(drop_ns_[g])) drop_column_[g] = add_column();
      if (may_offload_) offload_column_[g] = add_column();
    }
  }
  int add_column() {
    Highs_addCol(highs_.get(), 0, 0, 1, 0, nullptr, nullptr);
    return columns_++;
  }

  void add_rows() {
    Row compute, out, in;
    compute.add(0, 1);
    out.add(0, 1);
    in.add(0, 1);
    for (std::size_t g = 0; g < it_.gaps.size(); ++g) {
      if (drop_column_[g] >= 0) compute.add(drop_column_[g], -drop_ns_[g] / kScaleNs);
      if (offload_column_[g] >= 0) {
        const auto size = static_cast<std::int64_t>(bytes(g));
        const bool first =
            g == 0 || it_.gaps[g - 1].storage != it_.gaps[g].storage || offload_column_[g - 1] < 0;
        if (first)
          out.add(offload_column_[g],
                  -it_.device->copy_ns(size, Stream::kCopyOut, Tier::kHost) / kScaleNs);
        in.add(offload_column_[g],
               -it_.device->copy_ns(size, Stream::kCopyIn, Tier::kHost) / kScaleNs);
      }
      if (drop_column_[g] >= 0 && offload_column_[g] >= 0) {
        Row one;
        one.add(drop_column_[g], -1);
        one.add(offload_column_[g], -1);
        add_row(one, -1);
      }
    }
    add_row(compute, it_.total_ns / kScaleNs);
    add_row(out, 0);
    add_row(in, 0);
  }

  struct Row {
    std::vector<int> columns;
    std::vector<double> values;
    void add(int column, double value) {
      columns.push_back(column);
      values.push_back(value);
    }
  };
  void add_row(const Row& row, double least) {
    Highs_addRow(highs_.get(), least, Highs_getInfinity(highs_.get()),
                 static_cast<int>(row.columns.size()), row.columns.data(), row.values.data());
  }

  void read_solution() {
    solution_.resize(std::size_t(columns_));
    std::vector<double> column_dual(solution_.size());
    const auto rows = static_cast<std::size_t>(Highs_getNumRow(highs_.get()));
    std::vector<double> row_value(rows), row_dual(rows);
    Highs_getSolution(highs_.get(), solution_.data(), column_dual.data(), row_value.data(),
                      row_dual.data());
  }

  // The worst position of each stretch above the target. False where there is none.
  bool add_cuts() {
    std::vector<double> change(it_.curve_bytes.size() + 1);
    for (std::size_t g = 0; g < it_.gaps.size(); ++g) {
      const double gone = bytes(g) * (value(drop_column_[g]) + value(offload_column_[g]));
      change[std::size_t(it_.gaps[g].from) + 1] -= gone;
      change[std::size_t(it_.gaps[g].to)] += gone;
    }
    std::vector<std::pair<double, std::size_t>> worst;
    double moved = 0;
    bool inside = false;
    for (std::size_t i = 0; i < it_.curve_bytes.size(); ++i) {
      moved += change[i];
      const double above =
          static_cast<double>(it_.curve_bytes[i] - target_bytes_) + moved - kScaleBytes / 1024;
      if (above <= 0) {
        inside = false;
        continue;
      }
      if (!inside) worst.emplace_back(-above, i);
      inside = true;
      if (-above < worst.back().first) worst.back() = {-above, i};
    }
    std::sort(worst.begin(), worst.end());
    if (worst.size() > kCutsPerRound) worst.resize(kCutsPerRound);
    bool added = false;
    for (const auto& [excess, position] : worst) added = add_cut(position) || added;
    return added;
  }
  bool add_cut(std::size_t position) {
    if (std::find(cut_at_.begin(), cut_at_.end(), position) != cut_at_.end()) return false;
    cut_at_.push_back(position);
    Row row;
    double most = 0;
    for (std::size_t g = 0; g < it_.gaps.size(); ++g) {
      const bool across = it_.gaps[g].from < static_cast<std::int32_t>(position) &&
                          static_cast<std::int32_t>(position) < it_.gaps[g].to;
      if (!across || (drop_column_[g] < 0 && offload_column_[g] < 0)) continue;
      most += bytes(g);
      for (const int column : {drop_column_[g], offload_column_[g]})
        if (column >= 0) row.add(column, bytes(g) / kScaleBytes);
    }
    // What no choice can reach is left to the replay.
    const double need =
        std::min(most, static_cast<double>(it_.curve_bytes[position] - target_bytes_));
    if (row.columns.empty()) return false;
    add_row(row, need / kScaleBytes * (1 - 1e-9));
    return true;
  }

  const Problem& it_;
  const std::vector<double>& drop_ns_;
  std::int64_t target_bytes_;
  bool may_recompute_;
  bool may_offload_;
  std::unique_ptr<void, HighsDeleter> highs_;
  int columns_ = 0;
  std::vector<int> drop_column_, offload_column_;
  std::vector<double> solution_;
  std::vector<std::size_t> cut_at_;
};

}  // namespace

LinearChoice choose_by_linear_program(const Problem& problem, const std::vector<double>& drop_ns,
                                      std::int64_t target_bytes, bool may_recompute,
                                      bool may_offload) {
  return Program(problem, drop_ns, target_bytes, may_recompute, may_offload).run();
}

}  // namespace plimsoll::plan
