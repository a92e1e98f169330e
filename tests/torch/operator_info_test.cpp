// SPDX-License-Identifier: Apache-2.0
// What is known of operators, held against all that this LibTorch has.
#include "operator_info.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "equality.h"

namespace plimsoll {
namespace {

namespace nn = torch::nn;

// Operators that take running statistics and leave them as they are.
struct Reader {
  std::string_view name;
  std::string_view reason;
};
constexpr std::array kReaders = {
    Reader{"aten::_batch_norm_impl_index_backward", "a backward reads them"},
    Reader{"aten::batch_norm_backward", "a backward reads them"},
    Reader{"aten::native_batch_norm_backward", "a backward reads them"},
    Reader{"aten::cudnn_batch_norm_backward", "a backward reads them"},
    Reader{"aten::miopen_batch_norm_backward", "a backward reads them"},
    Reader{"aten::_batch_norm_no_update", "normalises by them, or by the batch alone"},
    Reader{"aten::_native_batch_norm_legit_no_training", "normalises by them"},
    Reader{"aten::_batch_norm_with_update_functional", "returns new ones"},
    Reader{"aten::_native_batch_norm_legit_functional", "returns new ones"},
};

bool is_reader(const std::string& name) {
  return std::any_of(kReaders.begin(), kReaders.end(),
                     [&](const Reader& reader) { return reader.name == name; });
}

TEST(OperatorInfoTest, EveryOperatorThatUpdatesRunningStatisticsIsKnownToWriteThem) {
  detail::OperatorInfos infos;
  auto& dispatcher = c10::Dispatcher::singleton();
  int updated = 0;
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (!op || is_reader(name.name)) continue;
    SCOPED_TRACE(toString(name));
    const auto& arguments = op->schema().arguments();
    for (int i = 0; i < static_cast<int>(arguments.size()); ++i) {
      const std::string& argument = arguments[static_cast<std::size_t>(i)].name();
      if (argument != "running_mean" && argument != "running_var") continue;
      const detail::OperatorInfo& info = infos.of(*op);
      EXPECT_FALSE(info.can_rerun);
      // What a composite operator is made of is seen in its place.
      if (info.kind == detail::OperatorClass::kComposite) continue;
      EXPECT_TRUE(info.writes_argument(i)) << argument;
      ++updated;
    }
  }
  EXPECT_GE(updated, 2 * 6);
}

TEST(OperatorInfoTest, EveryReaderOfRunningStatisticsExistsAndWritesNoneOfItsArguments) {
  detail::OperatorInfos infos;
  for (const Reader& reader : kReaders) {
    const auto op = c10::Dispatcher::singleton().findSchema({std::string(reader.name), ""});
    if (!op) continue;  // not in this release
    EXPECT_EQ(infos.of(*op).writes, 0U) << reader.name;
  }
}

TEST(SessionBatchNorm, RunningStatisticsAreUpdatedOnceAStep) {
  constexpr int kSteps = 3;
  constexpr int kNorms = 4;
  const MakeProgram make = [] {
    nn::Sequential model;
    for (int i = 0; i < kNorms; ++i) {
      model->push_back(nn::Conv2d(nn::Conv2dOptions(i == 0 ? 3 : 8, 8, 3).padding(1)));
      model->push_back(nn::BatchNorm2d(8));
      model->push_back(nn::ReLU());
    }
    Program program;
    program.model = model.ptr();
    program.optimizer = std::make_shared<torch::optim::SGD>(model->parameters(), 0.05);
    auto x = torch::randn({8, 3, 16, 16});
    program.step = [=, optimizer = program.optimizer](int) mutable {
      optimizer->zero_grad();
      auto loss = model->forward(x).pow(2).mean();
      loss.backward();
      optimizer->step();
      return loss;
    };
    return program;
  };
  const Outcome stock = run(make, kSteps);
  const Outcome ours = run(
      make, kSteps, SessionOptions{.budget_bytes = stock.peak_bytes * 60 / 100, .poison = true});
  EXPECT_GT(ours.report.offloaded_bytes, 0);
  expect_identical(stock, ours);
  int counters = 0;
  int statistics = 0;
  for (const auto& [name, tensor] : ours.tensors) {
    if (name.find("running_") != std::string::npos) ++statistics;
    if (name.find("num_batches_tracked") == std::string::npos) continue;
    ++counters;
    EXPECT_EQ(tensor.item<std::int64_t>(), kSteps);
  }
  EXPECT_EQ(counters, kNorms);
  EXPECT_EQ(statistics, 2 * kNorms);
}

}  // namespace
}  // namespace plimsoll
