// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/train/comparison.h"

#include <bit>
#include <cstdint>
#include <cstring>

#include <spdlog/fmt/fmt.h>
#include <torch/types.h>

namespace plimsoll::train {
namespace {

std::string sizes_text(const torch::Tensor& tensor) {
  std::string text = "[";
  for (const std::int64_t size : tensor.sizes())
    text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "] of " + c10::toString(tensor.scalar_type());
}

// A copy made by an operator, so that what a session evicted comes back for it.
torch::Tensor copy_of(const torch::Tensor& tensor) {
  return tensor.detach().clone(at::MemoryFormat::Contiguous);
}

std::string tensor_difference(const NamedTensor& expected, const NamedTensor& actual) {
  if (expected.name != actual.name)
    return fmt::format("'{}' stands where '{}' should", actual.name, expected.name);
  if (expected.tensor.sizes() != actual.tensor.sizes() ||
      expected.tensor.dtype() != actual.tensor.dtype()) {
    return fmt::format("{} is {} against {}", expected.name, sizes_text(actual.tensor),
                       sizes_text(expected.tensor));
  }
  const torch::Tensor first = copy_of(expected.tensor);
  const torch::Tensor second = copy_of(actual.tensor);
  const auto* a = static_cast<const char*>(first.const_data_ptr());
  const auto* b = static_cast<const char*>(second.const_data_ptr());
  if (first.nbytes() == 0 || std::memcmp(a, b, first.nbytes()) == 0) return "";
  const auto width = static_cast<std::size_t>(first.element_size());
  std::size_t element = 0;
  while (std::memcmp(a + element * width, b + element * width, width) == 0) ++element;
  const auto value = [&](const torch::Tensor& tensor) {
    return tensor.flatten()[static_cast<std::int64_t>(element)].item().toDouble();
  };
  return fmt::format("{} differs at element {}: {} against {}", expected.name, element,
                     value(second), value(first));
}

}  // namespace

std::string first_difference(const std::vector<NamedTensor>& expected,
                             const std::vector<NamedTensor>& actual) {
  for (std::size_t i = 0; i < std::min(expected.size(), actual.size()); ++i) {
    std::string difference = tensor_difference(expected[i], actual[i]);
    if (!difference.empty()) return difference;
  }
  if (expected.size() == actual.size()) return "";
  return fmt::format("there are {} tensors against {}", actual.size(), expected.size());
}

std::string first_difference(const Trainer& expected, const Trainer& actual) {
  std::string difference = first_difference(expected.tensors(), actual.tensors());
  if (difference.empty() && expected.optimizer_counters() != actual.optimizer_counters())
    difference = "the optimizer's counters differ";
  return difference;
}

bool is_same_loss(float expected, float actual) {
  return std::bit_cast<std::uint32_t>(expected) == std::bit_cast<std::uint32_t>(actual);
}

}  // namespace plimsoll::train
