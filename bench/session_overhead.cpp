// SPDX-License-Identifier: Apache-2.0
// What a session costs per operator: 1000 small operators, in a step and without a session.
//   build/release/bench/session_overhead --benchmark_min_time=0.5
// The counter "per_op" is the time of one operator; the session's cost is the difference of two
// rows.
#include <array>
#include <optional>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <c10/core/GradMode.h>

#include "plimsoll/base/bytes.h"
#include "plimsoll/session.h"

namespace plimsoll {
namespace {

constexpr int kOperators = 1000;

enum Mode : std::int64_t { kStock, kBetweenSteps, kInStep };
constexpr std::array<const char*, 3> kModeNames = {"stock", "between steps", "in a step"};

// Additions into one tensor: two operands, no allocation.
void add_in_place(at::Tensor& x, const at::Tensor& y) {
  for (int i = 0; i < kOperators; ++i) x.add_(y);
}

// Additions that each make a result and drop the one before.
void add(at::Tensor& x, const at::Tensor& y) {
  for (int i = 0; i < kOperators; ++i) x = at::add(x, y);
}

void run(benchmark::State& state, void (*body)(at::Tensor&, const at::Tensor&)) {
  const c10::AutoGradMode no_grad(false);
  at::set_num_threads(1);
  at::Tensor x = at::zeros({16});
  const at::Tensor y = at::ones({16});
  const auto mode = static_cast<Mode>(state.range(0));
  std::optional<Session> session;
  if (mode != kStock) session.emplace(SessionOptions{.budget_bytes = mib(64)});
  const auto once = [&] {
    std::optional<Step> step;
    if (mode == kInStep) step.emplace(session->step());
    body(x, y);
  };
  for (int i = 0; i < 4; ++i) once();  // the sequence is known from then on
  for (auto _ : state) once();
  state.SetLabel(kModeNames[static_cast<std::size_t>(mode)]);
  state.counters["per_op"] = benchmark::Counter(
      kOperators, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void modes(benchmark::internal::Benchmark* benchmark) {
  for (const Mode mode : {kStock, kBetweenSteps, kInStep}) benchmark->Arg(mode);
}

BENCHMARK_CAPTURE(run, add_in_place, add_in_place)->Apply(modes);
BENCHMARK_CAPTURE(run, add, add)->Apply(modes);

}  // namespace
}  // namespace plimsoll

BENCHMARK_MAIN();
