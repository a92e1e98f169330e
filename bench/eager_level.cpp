// SPDX-License-Identifier: Apache-2.0
// Time and traffic of the eager level beside stock LibTorch: both in one process, same seed, steps
// interleaved, every loss compared before anything is reported.
//
//     eager_level MODEL BATCH BUDGET[,BUDGET...] [PAIRS]
//
// BUDGET is a size, a percentage of stock's whole peak, "none" (twice stock's peak), or "level0"
// (no session: the counting allocator alone). Stock's steps use LibTorch's own allocator. Prints
// one JSON object a budget.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/CPUAllocator.h>
#include <nlohmann/json.hpp>
#include <torch/torch.h>

#include "plimsoll/allocator.h"
#include "plimsoll/base/size.h"
#include "plimsoll/models/model.h"
#include "plimsoll/session.h"

namespace {

using Json = nlohmann::ordered_json;

struct Side {
  std::shared_ptr<plimsoll::models::Model> model;
  std::unique_ptr<torch::optim::SGD> optimizer;
  plimsoll::models::Batch batch;
  torch::Tensor generator_state;

  Side(const std::string& name, std::int64_t batch_size) {
    model = plimsoll::models::make_model(name);
    optimizer = std::make_unique<torch::optim::SGD>(model->parameters(),
                                                    torch::optim::SGDOptions(0.01).momentum(0.9));
    batch = plimsoll::models::synthetic_batch(model->shape(), batch_size, 7);
    auto generator = at::detail::createCPUGenerator(11);
    generator_state = generator.get_state();
  }

  // One step with this side's own random numbers. Returns the loss.
  float step() {
    auto generator = at::detail::getDefaultCPUGenerator();
    generator.set_state(generator_state);
    optimizer->zero_grad();
    auto loss = plimsoll::models::cross_entropy(model->forward(batch.input), batch.target);
    loss.backward();
    optimizer->step();
    generator_state = generator.get_state();
    return loss.item<float>();
  }
};

double seconds(const std::function<void()>& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// Stock's steps allocate from LibTorch's own allocator, as in a program that knows nothing of us.
// Memory goes back to whoever gave it, so the two may be changed at any time.
class StockAllocator {
 public:
  StockAllocator() : ours_(c10::GetAllocator(c10::kCPU)) { set(c10::GetDefaultCPUAllocator()); }
  ~StockAllocator() { set(ours_); }
  StockAllocator(const StockAllocator&) = delete;
  StockAllocator& operator=(const StockAllocator&) = delete;

 private:
  static void set(c10::Allocator* allocator) {
    c10::SetCPUAllocator(allocator, /*priority=*/1);  // as install_allocator() does
  }
  c10::Allocator* const ours_;
};

struct Timed {
  std::vector<double> ratios;
  std::vector<double> stock_seconds;
  bool identical = true;
};

// Steps in turns; who goes first changes from pair to pair.
Timed time_pairs(const std::function<float()>& stock_step, const std::function<float()>& our_step,
                 int pairs) {
  Timed timed;
  constexpr int kWarmUp = 4;
  for (int i = 0; i < kWarmUp + pairs; ++i) {
    float stock_loss = 0;
    float our_loss = 0;
    double stock = 0;
    const auto run_stock = [&] {
      const StockAllocator allocator;
      stock = seconds([&] { stock_loss = stock_step(); });
    };
    if (i % 2 == 0) run_stock();
    const double ours = seconds([&] { our_loss = our_step(); });
    if (i % 2 == 1) run_stock();
    timed.identical &=
        std::bit_cast<std::uint32_t>(stock_loss) == std::bit_cast<std::uint32_t>(our_loss);
    if (i < kWarmUp) continue;
    timed.ratios.push_back(ours / stock);
    timed.stock_seconds.push_back(stock);
  }
  return timed;
}

void add_times(Json& row, const Timed& timed) {
  row["identical"] = timed.identical;
  row["stock_seconds"] = median(timed.stock_seconds);
  row["pairs"] = timed.ratios.size();
  row["time_ratio"] = median(timed.ratios);
  row["time_ratio_min"] = *std::min_element(timed.ratios.begin(), timed.ratios.end());
  row["time_ratio_max"] = *std::max_element(timed.ratios.begin(), timed.ratios.end());
}

Json measure_level0(const std::string& name, std::int64_t batch_size, int pairs) {
  Side stock(name, batch_size);
  Side ours(name, batch_size);
  Json row = {{"model", name}, {"batch", batch_size}, {"budget", "level0"}};
  add_times(row, time_pairs([&] { return stock.step(); }, [&] { return ours.step(); }, pairs));
  return row;
}

std::int64_t stock_peak(const std::string& name, std::int64_t batch_size) {
  const std::int64_t before = plimsoll::allocator_statistics().live_bytes;
  Side side(name, batch_size);
  for (int i = 0; i < 2; ++i) side.step();
  plimsoll::reset_allocator_statistics();
  side.step();
  return plimsoll::allocator_statistics().peak_bytes - before;
}

Json measure(const std::string& name, std::int64_t batch_size, const std::string& budget_text,
             std::int64_t peak, int pairs) {
  const auto spec = plimsoll::parse_size_spec(budget_text, "BUDGET");
  const std::int64_t budget =
      spec.kind == plimsoll::SizeSpec::Kind::kNone ? 2 * peak : spec.resolve(peak, 0);
  Side stock(name, batch_size);
  Side ours(name, batch_size);
  plimsoll::Session session({.budget_bytes = budget});
  std::vector<plimsoll::SessionReport> reports;
  const Timed timed = time_pairs(
      [&] {
        const auto pause = session.pause();
        return stock.step();
      },
      [&] {
        float loss = 0;
        {
          const auto step = session.step();
          loss = ours.step();
        }
        reports.push_back(session.report());
        return loss;
      },
      pairs);
  const auto& report = reports.back();
  // Steps differ a little in what they move, as blocks come to lie elsewhere: the mean of those
  // that were timed.
  const auto mean = [&](std::int64_t plimsoll::SessionReport::* bytes) {
    const auto first = reports.end() - pairs;
    const std::int64_t sum =
        std::accumulate(first, reports.end(), std::int64_t{0},
                        [&](std::int64_t total, const auto& step) { return total + step.*bytes; });
    return sum / pairs;
  };
  const std::int64_t offloaded = mean(&plimsoll::SessionReport::offloaded_bytes);
  const std::int64_t prefetched = mean(&plimsoll::SessionReport::prefetched_bytes);
  const std::int64_t moved = offloaded + prefetched;
  const std::int64_t bound = session.moved_lower_bound_bytes();
  Json row = {
      {"model", name},
      {"batch", batch_size},
      {"budget", budget_text},
      {"budget_bytes", budget},
      {"stock_peak_bytes", peak},
      {"peak_bytes", report.peak_bytes},
      {"persistent_bytes", report.persistent_bytes},
      {"lower_bound_bytes", report.lower_bound_bytes},
      {"offloaded_bytes", offloaded},
      {"prefetched_bytes", prefetched},
      {"slid_bytes", mean(&plimsoll::SessionReport::slid_bytes)},
      {"planned_bytes", report.planned_bytes},
      {"moved_lower_bound_bytes", bound},
      {"moved_ratio", bound > 0 ? static_cast<double>(moved) / static_cast<double>(bound) : 1.0},
      {"operators", report.operators},
      {"steps_on_sequence", report.steps_on_sequence}};
  add_times(row, timed);
  return row;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 4) {
    std::fprintf(stderr, "usage: eager_level MODEL BATCH BUDGET[,BUDGET...] [PAIRS]\n");
    return 2;
  }
  plimsoll::install_allocator();
  const std::string name = argv[1];
  const std::int64_t batch_size = std::stoll(argv[2]);
  const int pairs = argc > 4 ? std::stoi(argv[4]) : 10;
  const std::int64_t peak = stock_peak(name, batch_size);
  std::string budgets = argv[3];
  Json rows = Json::array();
  while (!budgets.empty()) {
    const auto comma = budgets.find(',');
    const std::string budget = budgets.substr(0, comma);
    rows.push_back(budget == "level0" ? measure_level0(name, batch_size, pairs)
                                      : measure(name, batch_size, budget, peak, pairs));
    std::fprintf(stderr, "%s\n", rows.back().dump().c_str());
    budgets = comma == std::string::npos ? "" : budgets.substr(comma + 1);
  }
  std::printf("%s\n", rows.dump(2).c_str());
  return 0;
} catch (const c10::Error& error) {
  std::fprintf(stderr, "eager_level: %s\n", error.what_without_backtrace());
  return 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "eager_level: %s\n", error.what());
  return 1;
}
