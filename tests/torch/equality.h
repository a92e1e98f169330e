// SPDX-License-Identifier: Apache-2.0
// Runs a training program stock and under a session and compares every bit.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "plimsoll/allocator.h"
#include "plimsoll/session.h"

namespace plimsoll {

// What a test's program throws.
struct ProgramError : std::runtime_error {
  ProgramError() : std::runtime_error("the program's own") {}
};

// A training program: a model, its optimizer and one step. Made anew for each run, after seeding.
struct Program {
  std::shared_ptr<torch::nn::Module> model;
  std::shared_ptr<torch::optim::Optimizer> optimizer;
  // Returns the loss. May end by a ProgramError: the run goes on with the next step.
  std::function<torch::Tensor(int step)> step;
};
using MakeProgram = std::function<Program()>;

using Named = std::vector<std::pair<std::string, torch::Tensor>>;

// Everything a run leaves behind, copied.
struct Outcome {
  Named tensors;
  std::int64_t peak_bytes = 0;  // of level 0 for stock, of the session otherwise
  // The most that came from LibTorch's heap, past the arena, inside one step of a session.
  std::int64_t heap_bytes = 0;
  SessionReport report;
};

// What a step may take from the heap: numbers that LibTorch wraps into tensors, of 64 bytes each.
inline constexpr std::int64_t kWrappedNumbersBytes = 4 << 10;

inline void keep(Named& out, const std::string& name, const torch::Tensor& tensor) {
  if (tensor.defined()) out.emplace_back(name, tensor.detach().clone());
}

inline void keep_state(Named& out, const Program& program, int step) {
  const std::string prefix = "step " + std::to_string(step) + " ";
  for (const auto& parameter : program.model->named_parameters()) {
    keep(out, prefix + parameter.key(), parameter.value());
    keep(out, prefix + "grad of " + parameter.key(), parameter.value().grad());
  }
  for (const auto& buffer : program.model->named_buffers()) {
    keep(out, prefix + buffer.key(), buffer.value());
  }
  keep(out, prefix + "generator", at::detail::getDefaultCPUGenerator().get_state());
}

inline Outcome run(const MakeProgram& make, int steps,
                   const std::optional<SessionOptions>& options = std::nullopt) {
  install_allocator();
  torch::manual_seed(17);
  Program program = make();
  Outcome outcome;
  std::optional<Session> session;
  if (options) session.emplace(*options);
  reset_allocator_statistics();
  const auto start_live = allocator_statistics().live_bytes;
  std::int64_t model_bytes = 0;
  for (const auto& parameter : program.model->parameters()) {
    model_bytes += static_cast<std::int64_t>(parameter.nbytes());
  }
  for (int i = 0; i < steps; ++i) {
    torch::Tensor loss;
    // What is taken over in the first step leaves the heap, so that it shows less there.
    if (session) reset_allocator_statistics();
    const auto step_start_live = allocator_statistics().live_bytes;
    try {
      std::optional<Step> step;
      if (session) step.emplace(session->step());
      loss = program.step(i);
    } catch (const ProgramError&) {
      EXPECT_FALSE(loss.defined());
    }
    if (session) {
      const std::int64_t taken = allocator_statistics().peak_bytes - step_start_live;
      outcome.heap_bytes = std::max(outcome.heap_bytes, taken);
    }
    if (i + 1 == steps) {
      outcome.peak_bytes = allocator_statistics().peak_bytes - start_live + model_bytes;
    }
    keep(outcome.tensors, "loss " + std::to_string(i), loss);
    if (i + 1 == steps) keep_state(outcome.tensors, program, i);
  }
  if (session) {
    outcome.report = session->report();
    outcome.peak_bytes = outcome.report.peak_bytes;
  }
  return outcome;
}

// Whether the bytes are out of the arena. Null where LibTorch cannot forbid pointers (2.11).
inline bool is_out(c10::StorageImpl& storage) {
  try {
    return storage.mutable_data() == nullptr;
  } catch (const c10::Error&) {
    return true;
  }
}
inline bool is_out(const torch::Tensor& tensor) {
  return is_out(*tensor.storage().unsafeGetStorageImpl());
}

inline bool same_bits(const torch::Tensor& a, const torch::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  const torch::Tensor x = a.contiguous();
  const torch::Tensor y = b.contiguous();
  return x.nbytes() == 0 || std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
}

inline void expect_identical(const Outcome& stock, const Outcome& other) {
  ASSERT_EQ(stock.tensors.size(), other.tensors.size());
  for (std::size_t i = 0; i < stock.tensors.size(); ++i) {
    ASSERT_EQ(stock.tensors[i].first, other.tensors[i].first);
    ASSERT_TRUE(same_bits(stock.tensors[i].second, other.tensors[i].second))
        << stock.tensors[i].first << " differs from stock";
  }
}

}  // namespace plimsoll
