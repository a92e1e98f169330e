// SPDX-License-Identifier: Apache-2.0
// Time and traffic of the eager level beside stock LibTorch: both in one process, same seed, steps
// interleaved, every loss compared before anything is reported.
//
//     eager_level MODEL BATCH BUDGET[,BUDGET...] [PAIRS]
//
// BUDGET is a size, a percentage of stock's whole peak, or "none" (twice stock's peak). Prints one
// JSON object a budget.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

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
  bool identical = true;
  std::vector<double> ratios;
  std::vector<double> stock_seconds;
  constexpr int kWarmUp = 4;
  for (int i = 0; i < kWarmUp + pairs; ++i) {
    float stock_loss = 0;
    float our_loss = 0;
    const auto run_stock = [&] {
      const auto pause = session.pause();
      stock_loss = stock.step();
    };
    const auto run_ours = [&] {
      const auto step = session.step();
      our_loss = ours.step();
    };
    // Whoever goes first changes from pair to pair.
    double a = 0;
    double b = 0;
    if (i % 2 == 0) a = seconds(run_stock);
    b = seconds(run_ours);
    if (i % 2 == 1) a = seconds(run_stock);
    identical = identical && std::memcmp(&stock_loss, &our_loss, sizeof(float)) == 0;
    if (i < kWarmUp) continue;
    ratios.push_back(b / a);
    stock_seconds.push_back(a);
  }
  const auto report = session.report();
  const std::int64_t moved = report.offloaded_bytes + report.prefetched_bytes;
  const std::int64_t bound = session.moved_lower_bound_bytes();
  return {
      {"model", name},
      {"batch", batch_size},
      {"budget", budget_text},
      {"budget_bytes", budget},
      {"stock_peak_bytes", peak},
      {"peak_bytes", report.peak_bytes},
      {"persistent_bytes", report.persistent_bytes},
      {"lower_bound_bytes", report.lower_bound_bytes},
      {"identical", identical},
      {"offloaded_bytes", report.offloaded_bytes},
      {"prefetched_bytes", report.prefetched_bytes},
      {"slid_bytes", report.slid_bytes},
      {"planned_bytes", report.planned_bytes},
      {"moved_lower_bound_bytes", bound},
      {"moved_ratio", bound > 0 ? static_cast<double>(moved) / static_cast<double>(bound) : 1.0},
      {"operators", report.operators},
      {"steps_on_sequence", report.steps_on_sequence},
      {"stock_seconds", median(stock_seconds)},
      {"pairs", pairs},
      {"time_ratio", median(ratios)},
      {"time_ratio_min", *std::min_element(ratios.begin(), ratios.end())},
      {"time_ratio_max", *std::max_element(ratios.begin(), ratios.end())}};
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
    rows.push_back(measure(name, batch_size, budgets.substr(0, comma), peak, pairs));
    std::fprintf(stderr, "%s\n", rows.back().dump().c_str());
    budgets = comma == std::string::npos ? "" : budgets.substr(comma + 1);
  }
  std::printf("%s\n", rows.dump(2).c_str());
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "eager_level: %s\n", error.what());
  return 1;
}
