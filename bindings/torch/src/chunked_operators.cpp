// SPDX-License-Identifier: Apache-2.0
#include "chunked_operators.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include <ATen/ops/empty.h>

#include "operator_info.h"
#include "tensor_storages.h"

namespace plimsoll::detail {
namespace {

constexpr std::int64_t kElementsInStep = 64;

char* bytes_at(const at::Tensor& tensor, std::int64_t element) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  return static_cast<char*>(storage->_mutable_data_ptr_no_checks().get()) +
         (tensor.storage_offset() + element) * static_cast<std::int64_t>(tensor.itemsize());
}

bool is_real(const at::Tensor& tensor) {
  return c10::isFloatingType(tensor.scalar_type()) ||
         c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
}

// Elements in the order of their addresses are then all elements, once.
bool is_dense(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.layout() == c10::kStrided && tensor.has_storage() &&
         !tensor.is_quantized() && !tensor.is_nested() && !tensor.is_conj() && !tensor.is_neg() &&
         tensor.is_non_overlapping_and_dense() && is_real(tensor);
}

}  // namespace

bool is_exactly_rounded(const c10::FunctionSchema& schema) {
  static constexpr std::array<std::string_view, 22> kNames = {
      "abs",        "add",  "addcdiv", "addcmul", "clamp",   "clamp_max", "clamp_min", "clone",
      "copy",       "div",  "fill",    "lerp",    "maximum", "minimum",   "mul",       "neg",
      "reciprocal", "relu", "rsub",    "sqrt",    "sub",     "zero"};
  std::string_view name = schema.name();
  if (!name.starts_with("aten::")) return false;
  name.remove_prefix(6);
  if (name.ends_with("_")) name.remove_suffix(1);
  const bool is_known = std::find(kNames.begin(), kNames.end(), name) != kNames.end();
  return is_known && schema.returns().size() == 1;
}

std::optional<ChunkedCall> ChunkedCall::of(const OperatorInfo& info,
                                           const torch::jit::Stack& stack) {
  ChunkedCall call;
  call.arguments_ = info.arguments;
  call.first_ = stack.size() - static_cast<std::size_t>(info.arguments);
  const at::Tensor* shape = nullptr;
  for (int i = 0; i < info.arguments; ++i) {
    const c10::IValue& value = stack[call.first_ + static_cast<std::size_t>(i)];
    if (value.isTensorList()) return std::nullopt;
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    const at::Tensor& tensor = value.toTensor();
    c10::StorageImpl* storage = storage_of(tensor);
    if (tensor.dim() == 0) {
      if (info.writes_argument(i)) return std::nullopt;
      if (storage != nullptr) call.numbers_.push_back(storage);
      continue;
    }
    if (shape == nullptr) shape = &tensor;
    // What is broadcast, or laid out otherwise, meets other elements than its address says.
    if (storage == nullptr || !is_dense(tensor) || tensor.sizes() != shape->sizes() ||
        tensor.strides() != shape->strides()) {
      return std::nullopt;
    }
    for (const Large& other : call.large_) {
      const at::Tensor& earlier =
          stack[call.first_ + static_cast<std::size_t>(other.index)].toTensor();
      const bool is_shared = storage_of(earlier) == storage;
      if (is_shared && earlier.storage_offset() != tensor.storage_offset()) return std::nullopt;
    }
    call.large_.push_back({i, info.writes_argument(i)});
    if (info.writes_argument(i)) call.returned_argument_ = i;
    if (std::find(call.storages_.begin(), call.storages_.end(), storage) == call.storages_.end()) {
      call.storages_.push_back(storage);
      call.bytes_ += static_cast<std::int64_t>(storage->nbytes());
    }
  }
  if (shape == nullptr) return std::nullopt;
  // Another layout is asked of the result than the operand's.
  if (info.name == "aten::clone" && !stack.back().isNone()) return std::nullopt;
  call.elements_ = shape->numel();
  if (call.returned_argument_ < 0) call.bytes_ += static_cast<std::int64_t>(shape->nbytes());
  return call;
}

void ChunkedCall::copy_elements(const at::Tensor& whole, std::int64_t begin,
                                const at::Tensor& chunk, std::int64_t count, bool is_into_chunk) {
  char* outside = bytes_at(whole, begin);
  char* inside = bytes_at(chunk, 0);
  const auto size = static_cast<std::size_t>(count) * whole.itemsize();
  if (is_into_chunk) {
    std::memcpy(inside, outside, size);
  } else {
    std::memcpy(outside, inside, size);
  }
}

c10::SmallVector<at::Tensor, 4> ChunkedCall::make_chunks(const torch::jit::Stack& stack,
                                                         std::int64_t chunk_bytes) const {
  const auto tensor = [&](const Large& large) -> const at::Tensor& {
    return stack[first_ + static_cast<std::size_t>(large.index)].toTensor();
  };
  std::int64_t element_bytes = returned_argument_ < 0 ? 8 : 0;
  for (const Large& large : large_) {
    element_bytes += static_cast<std::int64_t>(tensor(large).itemsize());
  }
  std::int64_t count = chunk_bytes / element_bytes / kElementsInStep * kElementsInStep;
  count = std::clamp(count, std::min(kElementsInStep, elements_), elements_);
  c10::SmallVector<at::Tensor, 4> chunks;
  for (const Large& large : large_) {
    chunks.push_back(at::empty({count}, at::TensorOptions().dtype(tensor(large).scalar_type())));
  }
  return chunks;
}

}  // namespace plimsoll::detail
