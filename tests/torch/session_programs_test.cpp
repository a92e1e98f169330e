// SPDX-License-Identifier: Apache-2.0
// Ways in which people write LibTorch programs, each under a budget far below stock's peak.
#include <algorithm>
#include <sstream>
#include <thread>

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "equality.h"
#include "tower_program.h"

namespace plimsoll {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

TEST(SessionPrograms, SequentialOfLinearAndTanhTrainsAtHalfItsPeak) {
  expect_same(tower_program(
                  [](nn::Sequential model, Optimizer optimizer, torch::Tensor x) {
                    return [=](int) mutable {
                      optimizer->zero_grad();
                      auto loss = model->forward(x).pow(2).mean();
                      loss.backward();
                      optimizer->step();
                      return loss;
                    };
                  },
                  8, 64),
              4, {.percent = 50, .at_most_percent = 50});
}

TEST(SessionPrograms, GradientsKeptByZeroGradAreTheSame) {
  expect_same(tower_program([](nn::Sequential model, Optimizer optimizer, torch::Tensor x) {
    return [=](int) mutable {
      optimizer->zero_grad(/*set_to_none=*/false);
      auto loss = model->forward(x).pow(2).mean();
      loss.backward();
      optimizer->step();
      return loss;
    };
  }));
}

TEST(SessionPrograms, GradientsAccumulateOverTwoBackwards) {
  expect_same(tower_program([](nn::Sequential model, Optimizer optimizer, torch::Tensor x) {
    return [=](int) mutable {
      optimizer->zero_grad();
      auto a = model->forward(x).pow(2).mean();
      a.backward();
      auto b = model->forward(x * 2).abs().mean();
      b.backward();
      optimizer->step();
      return a + b.detach();
    };
  }));
}

TEST(SessionPrograms, ThreeMicroBatchesWithAStepEachAndTheOptimizerInTheThird) {
  expect_same(tower_program([](nn::Sequential model, Optimizer optimizer, torch::Tensor x) {
                return [=](int step) mutable {
                  if (step % 3 == 0) optimizer->zero_grad();
                  auto micro = x.narrow(0, 40 * (step % 3), 40);
                  auto loss = model->forward(micro).pow(2).mean() / 3;
                  loss.backward();
                  if (step % 3 == 2) optimizer->step();
                  return loss;
                };
              }),
              9);
}

TEST(SessionPrograms, RetainGraphAndDoubleBackward) {
  expect_same(tower_program([](nn::Sequential model, Optimizer optimizer, torch::Tensor x) {
    return [=](int) mutable {
      optimizer->zero_grad();
      auto input = x.clone().requires_grad_(true);
      auto loss = model->forward(input).pow(2).mean();
      loss.backward({}, /*retain_graph=*/true);
      auto gradient = torch::autograd::grad({loss}, {input}, {}, true, /*create_graph=*/true)[0];
      auto penalty = gradient.pow(2).sum();
      penalty.backward();
      optimizer->step();
      return loss + penalty.detach();
    };
  }));
}

// Saves an input, an intermediate and a number.
struct Scaled : torch::autograd::Function<Scaled> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, torch::Tensor x,
                               double factor) {
    auto y = torch::sigmoid(x * factor);
    context->save_for_backward({x, y});
    context->saved_data["factor"] = factor;
    return y * x;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const double factor = context->saved_data["factor"].toDouble();
    auto dx = gradients[0] * (saved[1] + saved[0] * saved[1] * (1 - saved[1]) * factor);
    return {dx, torch::Tensor()};
  }
};

TEST(SessionPrograms, CustomFunctionsAndHooks) {
  expect_same(tower_program([](nn::Sequential model, Optimizer optimizer, torch::Tensor x) {
    return [=](int) mutable {
      optimizer->zero_grad();
      auto y = model->forward(x);
      y.register_hook([](const torch::Tensor& gradient) { return gradient * 0.5; });
      auto loss = Scaled::apply(y, 1.5).mean();
      loss.backward();
      optimizer->step();
      return loss;
    };
  }));
}

// A backward inside a backward.
struct Reentrant : torch::autograd::Function<Reentrant> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, torch::Tensor x) {
    context->save_for_backward({x});
    return x.exp();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const torch::AutoGradMode with_gradients(true);
    auto x = context->get_saved_variables()[0].detach().requires_grad_(true);
    x.exp().sum().backward();
    return {x.grad() * gradients[0]};
  }
};

TEST(SessionPrograms, ReentrantBackward) {
  expect_same(tower_program([](nn::Sequential model, Optimizer optimizer, torch::Tensor x) {
    return [=](int) mutable {
      optimizer->zero_grad();
      auto loss = Reentrant::apply(model->forward(x)).mean();
      loss.backward();
      optimizer->step();
      return loss;
    };
  }));
}

TEST(SessionPrograms, ViewsOfEvictedStoragesAndInPlaceOnViews) {
  expect_same(tower_program([](nn::Sequential model, Optimizer optimizer, torch::Tensor x) {
    return [=](int) mutable {
      optimizer->zero_grad();
      auto wide = torch::cat({x, x + 1}, 0);
      auto slice = wide.slice(0, 0, x.size(0));
      auto strided = wide.as_strided({x.size(0), x.size(1)}, {x.size(1), 1}, 5);
      auto y = model->forward(slice);
      auto z = y.clone();
      z.select(0, 3).mul_(2);
      z.narrow(1, 0, 4).add_(strided.narrow(1, 0, 4));
      auto loss = (z * y.t().contiguous().t() + x.select(0, 0).expand_as(z)).pow(2).mean();
      loss = loss + torch::empty({0, 4}).sum();
      loss.backward();
      optimizer->step();
      return loss;
    };
  }));
}

TEST(SessionPrograms, SquareAndItsTransposeSavedTogether) {
  for (const auto type : {torch::kFloat, torch::kBFloat16}) {
    expect_same(tower_program([type](nn::Sequential model, Optimizer optimizer, torch::Tensor x) {
      return [=](int) mutable {
        optimizer->zero_grad();
        auto y = model->forward(x).narrow(0, 0, 96).to(type);
        auto loss = y.matmul(y.t()).to(torch::kFloat).mean();
        loss.backward();
        optimizer->step();
        return loss;
      };
    }));
  }
}

TEST(SessionPrograms, ComplexNumbersWithConjugateViews) {
  expect_same(tower_program([](nn::Sequential model, Optimizer optimizer, torch::Tensor x) {
    return [=](int) mutable {
      optimizer->zero_grad();
      auto y = model->forward(x);
      auto c = torch::complex(y, y * 0.5);
      auto loss = torch::real(c.conj() * c).mean() + torch::real(c.resolve_conj().sum());
      loss.backward();
      optimizer->step();
      return loss;
    };
  }));
}

TEST(SessionPrograms, ResizedAndReplacedStorages) {
  expect_same(tower_program([](nn::Sequential model, Optimizer optimizer, torch::Tensor x) {
    // Numbers of which each knows its place, so that offsets and lost bytes show.
    const auto places = [](std::int64_t count) { return torch::arange(count, at::kFloat) * 1e-3; };
    auto growing = places(16);
    return [=](int) mutable {
      optimizer->zero_grad();
      auto y = model->forward(x);
      const std::int64_t old = growing.numel();
      growing.resize_({old + 512});  // the old bytes come along
      growing.narrow(0, old, 512).copy_(places(512));
      auto other = torch::empty({0});
      torch::mul_out(other, growing, growing);
      auto replaced = torch::empty({3});
      replaced.set_(other.storage(), 2, {7, 5}, {5, 1});
      auto loss = y.pow(2).mean() + (other * places(other.numel())).sum() +
                  (replaced * places(35).view({7, 5})).sum();
      loss.backward();
      optimizer->step();
      return loss;
    };
  }));
}

TEST(SessionPrograms, LazyClonesAreWrittenApart) {
  expect_same(tower_program([](nn::Sequential model, Optimizer optimizer, torch::Tensor x) {
    return [=](int) mutable {
      optimizer->zero_grad();
      auto y = model->forward(x);
      auto lazy = y._lazy_clone();
      y = y * 2;
      auto slice = (x * 2).slice(0, 3, 90, 2);
      auto lazy_slice = slice._lazy_clone();
      const bool looks_alike = lazy_slice.strides() == slice.strides() &&
                               lazy_slice.storage_offset() == slice.storage_offset();
      lazy_slice.mul_(0.5);
      slice.add_(0.125);
      auto loss = (y * lazy).mean() + (lazy_slice * slice).sum() + (looks_alike ? 0.25 : 0);
      loss.backward();
      optimizer->step();
      return loss;
    };
  }));
}

TEST(SessionPrograms, TiedWeightsAndMovingAverages) {
  expect_same([] {
    struct Tied : nn::Module {
      Tied() {
        weight = register_parameter("weight", torch::randn({128, 128}) * 0.1);
        average = register_buffer("average", weight.detach().clone());
      }
      torch::Tensor weight;
      torch::Tensor average;
    };
    auto model = std::make_shared<Tied>();
    Program program;
    program.model = model;
    program.optimizer = sgd(*model);
    auto x = torch::randn({256, 128});
    program.step = [model, x, optimizer = program.optimizer](int) mutable {
      optimizer->zero_grad();
      auto y = x;
      for (int i = 0; i < 6; ++i)
        y = torch::gelu(torch::linear(y, i % 2 == 0 ? model->weight : model->weight.t()));
      auto loss = y.pow(2).mean();
      loss.backward();
      optimizer->step();
      torch::NoGradGuard no_grad;
      model->average.mul_(0.9).add_(model->weight, 0.1);
      return loss;
    };
    return program;
  });
}

TEST(SessionPrograms, SetDataAndACheckpointLoadedInTheMiddle) {
  // What is loaded is made outside of any operator, on the heap.
  const std::int64_t loaded_bytes = 96 * 96 * 4;
  const MakeProgram make =
      tower_program([](nn::Sequential model, Optimizer optimizer, torch::Tensor x) {
        return [=](int step) mutable {
          optimizer->zero_grad();
          if (step == 2) {
            torch::NoGradGuard no_grad;
            auto weight = model->parameters()[0];
            weight.set_data(weight * 0.5);
            std::stringstream stream;
            torch::save(torch::ones({96, 96}) * 0.01, stream);
            torch::Tensor loaded;
            torch::load(loaded, stream);
            model->parameters()[2].copy_(loaded);
          }
          auto loss = model->forward(x).pow(2).mean();
          loss.backward();
          optimizer->step();
          return loss;
        };
      });
  expect_same(make, 4, {.heap_bytes = loaded_bytes + kWrappedNumbersBytes});
}

TEST(SessionPrograms, AutocastWithItsWeightCache) {
  expect_same(tower_program([](nn::Sequential model, Optimizer optimizer, torch::Tensor x) {
    return [=](int) mutable {
      optimizer->zero_grad();
      torch::Tensor y;
      at::autocast::set_autocast_enabled(at::kCPU, true);
      at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
      y = model->forward(x);
      y = torch::linear(y, model->parameters()[0]);
      at::autocast::clear_cache();
      at::autocast::set_autocast_enabled(at::kCPU, false);
      y = torch::linear(y.to(torch::kFloat), model->parameters()[0]);
      auto loss = y.pow(2).mean();
      loss.backward();
      optimizer->step();
      return loss;
    };
  }));
}

TEST(SessionPrograms, ASessionOpensWhateverModeItsThreadIsIn) {
  const auto opens = [] {
    Session session({.budget_bytes = mib(1)});
    const auto step = session.step();
    return torch::ones({64}).sum().item<float>() == 64.0F;
  };
  {
    const torch::NoGradGuard no_grad;
    EXPECT_TRUE(opens());
  }
  {
    const c10::InferenceMode inference;
    EXPECT_TRUE(opens());
  }
}

TEST(SessionPrograms, EvaluationInInferenceModeBetweenSteps) {
  expect_same(tower_program([](nn::Sequential model, Optimizer optimizer, torch::Tensor x) {
    return [=](int step) mutable {
      torch::Tensor evaluated;
      if (step % 2 == 1) {
        c10::InferenceMode inference;
        evaluated = model->forward(x.narrow(0, 0, 32)).mean();
      }
      optimizer->zero_grad();
      auto loss = model->forward(x).pow(2).mean();
      loss.backward();
      optimizer->step();
      return evaluated.defined() ? loss.detach() + evaluated.item<float>() : loss;
    };
  }));
}

TEST(SessionPrograms, ASmallerLastBatchAndAnEarlyReturn) {
  expect_same(tower_program([](nn::Sequential model, Optimizer optimizer, torch::Tensor x) {
                return [=](int step) mutable {
                  optimizer->zero_grad();
                  auto batch = step % 3 == 2 ? x.narrow(0, 0, 40) : x;
                  auto loss = model->forward(batch).pow(2).mean();
                  if (step == 4) return loss.detach();
                  loss.backward();
                  optimizer->step();
                  return loss;
                };
              }),
              7);
}

// A step over a batch of `rows(step)` rows.
template <typename RowsOf>
MakeProgram program_of_lengths(RowsOf rows) {
  return tower_program([rows](nn::Sequential model, Optimizer optimizer, torch::Tensor x) {
    return [=](int step) mutable {
      optimizer->zero_grad();
      auto loss = model->forward(x.narrow(0, 0, rows(step))).pow(2).mean();
      loss.backward();
      optimizer->step();
      return loss;
    };
  });
}

TEST(SessionPrograms, BatchesOfEverNewLengths) {
  expect_same(program_of_lengths([](int step) { return 128 - 8 * step; }), 8);
}

TEST(SessionPrograms, StepsThatNeverRepeatAreNotPlannedUntilOneDoes) {
  const std::int64_t peak = run(program_of_lengths([](int) { return 128; }), 2).peak_bytes;
  SessionOptions options;
  options.budget_bytes = peak * 45 / 100;
  const auto planned_after = [&](int steps, auto rows) {
    return run(program_of_lengths(rows), steps, options).report.planned_bytes;
  };
  EXPECT_GT(planned_after(3, [](int step) { return 128 - 4 * step; }), 0);
  EXPECT_EQ(planned_after(7, [](int step) { return 128 - 4 * step; }), 0);
  // The seventh comes again.
  EXPECT_GT(planned_after(8, [](int step) { return 128 - 4 * std::min(step, 6); }), 0);
}

TEST(SessionPrograms, TwoModelsInTurn) {
  expect_same(tower_program([](nn::Sequential model, Optimizer optimizer, torch::Tensor x) {
                auto second = tower(6, 96);
                return [=](int step) mutable {
                  optimizer->zero_grad();
                  auto loss = (step % 2 == 0 ? model : second)->forward(x).pow(2).mean();
                  loss.backward();
                  optimizer->step();
                  return loss;
                };
              }),
              6);
}

TEST(SessionPrograms, TensorsFromForeignMemoryAreCountedAndNeverMoved) {
  std::vector<float> pixels(128 * 96, 0.5F);
  expect_same(tower_program([&pixels](nn::Sequential model, Optimizer optimizer, torch::Tensor) {
    return [=, &pixels](int) mutable {
      optimizer->zero_grad();
      auto x = torch::from_blob(pixels.data(), {128, 96});
      auto loss = model->forward(x).pow(2).mean();
      loss.backward();
      optimizer->step();
      return loss;
    };
  }));
}

TEST(SessionPrograms, InstanceNormThenInPlaceReluAtTheEndOfANet) {
  expect_same([] {
    nn::Sequential model(nn::Conv2d(nn::Conv2dOptions(2, 16, 3).padding(1)), nn::ReLU(),
                         nn::Conv2d(nn::Conv2dOptions(16, 16, 3).padding(1)), nn::ReLU(),
                         nn::Conv2d(nn::Conv2dOptions(16, 16, 3).padding(1)), nn::ReLU(),
                         nn::Conv2d(nn::Conv2dOptions(16, 16, 3).padding(1)), nn::ReLU(),
                         nn::Conv2d(nn::Conv2dOptions(16, 16, 3).padding(1)), nn::ReLU(),
                         nn::Conv2d(nn::Conv2dOptions(16, 2, 3).padding(1)));
    Program program;
    program.model = model.ptr();
    program.optimizer = sgd(*model);
    auto x = torch::randn({8, 2, 16, 16});
    program.step = [=, optimizer = program.optimizer](int) mutable {
      optimizer->zero_grad();
      auto input = x.clone().requires_grad_(true);
      auto y = model->forward(input);
      y = F::instance_norm(y).relu_();
      auto loss = y.sum();
      loss.backward();
      optimizer->step();
      EXPECT_TRUE(input.grad().defined());
      return loss + input.grad().abs().sum().detach();
    };
    return program;
  });
}

TEST(SessionPrograms, TheFirstConvolutionLearnsThoughTheImageNeedsNoGradient) {
  const MakeProgram make = [] {
    nn::Sequential model(nn::Conv2d(nn::Conv2dOptions(3, 16, 3).padding(1)), nn::BatchNorm2d(16),
                         nn::ReLU(), nn::Conv2d(nn::Conv2dOptions(16, 16, 3).padding(1)),
                         nn::ReLU(), nn::Conv2d(nn::Conv2dOptions(16, 16, 3).padding(1)),
                         nn::ReLU(), nn::Conv2d(nn::Conv2dOptions(16, 16, 3).padding(1)),
                         nn::ReLU());
    Program program;
    program.model = model.ptr();
    program.optimizer = sgd(*model);
    auto x = torch::randn({8, 3, 16, 16});
    program.step = [=, optimizer = program.optimizer](int) mutable {
      optimizer->zero_grad();
      auto loss = model->forward(x).pow(2).mean();
      loss.backward();
      EXPECT_TRUE(model->parameters()[0].grad().defined());
      optimizer->step();
      return loss;
    };
    return program;
  };
  expect_same(make, 3);
}

TEST(SessionPrograms, ChannelsLast) {
  expect_same([] {
    nn::Sequential model(nn::Conv2d(nn::Conv2dOptions(8, 16, 3).padding(1)), nn::BatchNorm2d(16),
                         nn::ReLU(), nn::Conv2d(nn::Conv2dOptions(16, 16, 3).padding(1)),
                         nn::BatchNorm2d(16), nn::ReLU());
    Program program;
    program.model = model.ptr();
    program.optimizer = sgd(*model);
    auto x = torch::randn({8, 8, 16, 16}).contiguous(at::MemoryFormat::ChannelsLast);
    program.step = [=, optimizer = program.optimizer](int) mutable {
      optimizer->zero_grad();
      auto loss = model->forward(x).pow(2).mean();
      loss.backward();
      optimizer->step();
      return loss;
    };
    return program;
  });
}

TEST(SessionPrograms, ARecurrentNetAndAnEncoder) {
  expect_same([] {
    struct Both : nn::Module {
      Both()
          : lstm(register_module("lstm", nn::LSTM(nn::LSTMOptions(32, 32).num_layers(2)))),
            encoder(register_module("encoder",
                                    nn::TransformerEncoderLayer(
                                        nn::TransformerEncoderLayerOptions(32, 4).dropout(0.1)))) {}
      nn::LSTM lstm;
      nn::TransformerEncoderLayer encoder;
    };
    auto model = std::make_shared<Both>();
    Program program;
    program.model = model;
    program.optimizer = std::make_shared<torch::optim::AdamW>(model->parameters());
    auto x = torch::randn({12, 16, 32});
    program.step = [=, optimizer = program.optimizer](int) mutable {
      optimizer->zero_grad();
      auto y = std::get<0>(model->lstm(x));
      auto loss = model->encoder(y).pow(2).mean();
      loss.backward();
      nn::utils::clip_grad_norm_(model->parameters(), 0.5);
      optimizer->step();
      return loss;
    };
    return program;
  });
}

}  // namespace
}  // namespace plimsoll
