// SPDX-License-Identifier: Apache-2.0
// Saved, out, back: what autograd or a view holds alone leaves the arena and is as it was when it
// is used again.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/StorageImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "plimsoll/base/bytes.h"

#include "equality.h"

namespace plimsoll {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

constexpr std::int64_t kBudget = kib(96);
constexpr int kSteps = 3;  // the later ones by a plan

// Looks at a storage without keeping it.
using Watched = c10::weak_intrusive_ptr<c10::StorageImpl>;

Watched watch(const torch::Tensor& tensor) { return tensor.storage().getWeakStorageImpl(); }

bool has_left(const Watched& watched) {
  const auto storage = watched.lock();
  return storage != nullptr && is_out(*storage);  // null: nobody kept it
}

// Fills the arena with another thing and checks that the watched have left. Nothing in stock's run.
using Press = std::function<void(const std::vector<Watched>&)>;
using Case = std::function<void(const Press&, Named& kept)>;

void press(const std::vector<Watched>& watched) {
  // In one piece, so that nothing of it can leave instead.
  const auto other = torch::empty({kBudget / 4});
  for (std::size_t i = 0; i < watched.size(); ++i) {
    EXPECT_TRUE(has_left(watched[i])) << "watched tensor " << i;
  }
}

void run_case(const Case& body, const Press& press, Session* session, Named& kept) {
  for (int i = 0; i < kSteps; ++i) {
    torch::manual_seed(23 + i);
    std::optional<Step> step;
    if (session != nullptr) step.emplace(session->step());
    body(press, kept);
  }
}

void expect_stock(const Case& body) {
  install_allocator();
  Named expected;
  run_case(body, [](const std::vector<Watched>&) {}, nullptr, expected);
  Named ours;
  SessionReport report;
  {
    Session session({.budget_bytes = kBudget, .poison = true});
    run_case(body, press, &session, ours);
    report = session.report();
  }
  EXPECT_GT(report.offloaded_bytes, 0);
  EXPECT_LE(report.peak_bytes, kBudget);
  ASSERT_EQ(expected.size(), ours.size());
  ASSERT_FALSE(expected.empty());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(expected[i].first, ours[i].first);
    EXPECT_TRUE(same_bits(expected[i].second, ours[i].second)) << expected[i].first;
  }
}

TEST(SessionSaved, InstanceNormOfAnImageWithItsReluInPlace) {
  expect_stock([](const Press& press, Named& kept) {
    auto x = torch::randn({3, 2, 4}, torch::requires_grad());
    std::vector<Watched> watched = {watch(x)};
    torch::Tensor loss;
    {
      auto y = F::instance_norm(x).relu_();
      watched.push_back(watch(y));
      loss = y.pow(3).sum();  // of the sum alone the gradient is nought but for rounding
    }
    press(watched);
    loss.backward();
    keep(kept, "loss", loss);
    keep(kept, "gradient", x.grad());
  });
}

// A module with weights and its ReLU in place; `others`: what else of the module is to be out.
template <typename Norm>
void expect_stocks_norm(const Press& press, Named& kept, Norm norm, torch::Tensor x,
                        const std::vector<torch::Tensor>& others) {
  x.requires_grad_();
  std::vector<Watched> watched = {watch(x), watch(norm->weight)};
  for (const torch::Tensor& other : others) watched.push_back(watch(other));
  torch::Tensor loss;
  {
    auto y = norm(x).relu_();
    watched.push_back(watch(y));
    loss = y.pow(3).sum();
  }
  press(watched);
  loss.backward();
  keep(kept, "loss", loss);
  keep(kept, "gradient", x.grad());
  keep(kept, "gradient of the weight", norm->weight.grad());
  keep(kept, "gradient of the bias", norm->bias.grad());
  for (const torch::Tensor& other : others) keep(kept, "running statistics", other);
}

TEST(SessionSaved, InstanceNormWithWeightsAndRunningStatistics) {
  expect_stock([](const Press& press, Named& kept) {
    nn::InstanceNorm1d norm(nn::InstanceNorm1dOptions(2).affine(true).track_running_stats(true));
    expect_stocks_norm(press, kept, norm, torch::randn({3, 2, 4}),
                       {norm->running_mean, norm->running_var});
  });
}

TEST(SessionSaved, GroupNormWithItsReluInPlace) {
  expect_stock([](const Press& press, Named& kept) {
    expect_stocks_norm(press, kept, nn::GroupNorm(nn::GroupNormOptions(2, 4)),
                       torch::randn({3, 4, 4}), {});
  });
}

// A tensor and its transpose saved by one operator; the weight tells the two sides apart.
using Transposed = std::function<torch::Tensor(const torch::Tensor&)>;

void expect_product_with_transpose(std::int64_t rows, std::int64_t columns, at::ScalarType type,
                                   const Transposed& transposed) {
  expect_stock([=](const Press& press, Named& kept) {
    auto x = torch::randn({rows, columns}, at::TensorOptions(type).requires_grad(true));
    torch::Tensor loss;
    std::vector<Watched> watched = {watch(x)};
    {
      auto weight = torch::randn({rows, rows}, at::TensorOptions(type));
      auto other = transposed(x);
      watched.push_back(watch(weight));
      watched.push_back(watch(other));
      loss = (torch::matmul(x, other) * weight).sum();
    }
    press(watched);
    loss.backward();
    keep(kept, "loss", loss);
    keep(kept, "gradient", x.grad());
  });
}

TEST(SessionSaved, ASquareAndItsTransposeInOneOperator) {
  const auto t = [](const torch::Tensor& x) { return x.t(); };
  expect_product_with_transpose(32, 32, at::kFloat, t);
  expect_product_with_transpose(32, 32, at::kBFloat16, t);
}

TEST(SessionSaved, ASquareAndACopyOfItsTransposeInOneOperator) {
  const auto copy = [](const torch::Tensor& x) { return x.t().contiguous(); };
  expect_product_with_transpose(32, 32, at::kFloat, copy);
  expect_product_with_transpose(32, 32, at::kBFloat16, copy);
}

TEST(SessionSaved, AnOblongAndItsTransposeInOneOperator) {
  const auto t = [](const torch::Tensor& x) { return x.t(); };
  expect_product_with_transpose(32, 20, at::kFloat, t);
  expect_product_with_transpose(20, 32, at::kBFloat16, t);
}

TEST(SessionSaved, ASliceThatAutogradHoldsAloneKeepsItsStorageAndCounts) {
  constexpr std::int64_t kBig = kib(8);
  Session session({.budget_bytes = kBudget, .poison = true});
  for (int i = 0; i < kSteps; ++i) {
    const auto step = session.step();
    auto w = torch::full({8}, 0.5F, torch::requires_grad());
    torch::Tensor z;
    std::vector<Watched> watched;
    {
      auto big = torch::arange(kBig / 4, at::kFloat);
      watched = {watch(big)};
      auto y = big.slice(0, 0, 8);
      z = (y * w).sum();
    }
    press(watched);
    EXPECT_GE(session.report().host_bytes, kBig);
    z.backward({}, /*retain_graph=*/true);
    EXPECT_TRUE(w.grad().equal(torch::arange(8, at::kFloat)));
    EXPECT_EQ(z.item<float>(), 14.0F);
    press(watched);
    const std::int64_t with_slice = session.report().host_bytes;
    z.reset();
    EXPECT_LE(session.report().host_bytes, with_slice - kBig);
    EXPECT_TRUE(w.grad().equal(torch::arange(8, at::kFloat)));
    w.reset();
    EXPECT_EQ(session.report().host_bytes, 0);
  }
}

// A base, and how it is looked at.
struct View {
  const char* name;
  std::function<torch::Tensor()> base;
  std::function<torch::Tensor(const torch::Tensor& base)> of;
  bool can_be_written = true;
};

torch::Tensor real_base() { return torch::randn({16, 16}); }
torch::Tensor complex_base() { return torch::randn({16, 16}, at::kComplexFloat); }
torch::Tensor channels_last_base() {
  return torch::randn({2, 4, 6, 6}).contiguous(at::MemoryFormat::ChannelsLast);
}

void PrintTo(const View& view, std::ostream* out) { *out << view.name; }

class SessionSavedViews : public ::testing::TestWithParam<View> {};

TEST_P(SessionSavedViews, AreReadAndWrittenThroughAfterTheirBaseWasOut) {
  expect_stock([view = GetParam()](const Press& press, Named& kept) {
    auto base = view.base();
    auto part = view.of(base);
    ASSERT_EQ(part.storage().unsafeGetStorageImpl(), base.storage().unsafeGetStorageImpl());
    press({watch(base)});
    keep(kept, "what the view shows", part.resolve_conj());
    press({watch(base)});
    if (view.can_be_written) {
      part.mul_(3).add_(1);
    } else {
      EXPECT_THROW(part.mul_(3), c10::Error);
      base.mul_(3).add_(1);
    }
    press({watch(base)});
    keep(kept, "the whole base", base);
    press({watch(base)});
    keep(kept, "what the view shows then", part.resolve_conj());
  });
}

INSTANTIATE_TEST_SUITE_P(
    All, SessionSavedViews,
    ::testing::Values(
        View{"Narrow", real_base, [](const auto& x) { return x.narrow(1, 3, 5); }},
        View{"Select", real_base, [](const auto& x) { return x.select(1, 7); }},
        View{"Transpose", real_base, [](const auto& x) { return x.t(); }},
        View{"AsStrided", real_base,
             [](const auto& x) { return x.as_strided({3, 5}, {7, 2}, 11); }},
        View{"Diagonal", real_base, [](const auto& x) { return x.diagonal(2); }},
        // Steps as long as the windows: no element twice.
        View{"Unfold", real_base, [](const auto& x) { return x.unfold(0, 4, 4); }},
        View{"ViewAsReal", complex_base, [](const auto& x) { return torch::view_as_real(x); }},
        View{"Conj", complex_base, [](const auto& x) { return x.conj(); }},
        View{"Expand", [] { return torch::randn({16, 1}); },
             [](const auto& x) { return x.expand({16, 9}); }, /*can_be_written=*/false},
        View{"ChannelsLastSlice", channels_last_base,
             [](const auto& x) { return x.slice(1, 1, 3); }}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace plimsoll
