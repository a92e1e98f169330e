// SPDX-License-Identifier: Apache-2.0
#include "chunked_operators.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <ATen/ops/empty.h>

#include "arena.h"
#include "operator_info.h"

namespace plimsoll::detail {
namespace {

constexpr std::int64_t kElementsInStep = 64;

// Of an element, in its storage; a chunk or a kernel's result has its bytes in place.
std::int64_t byte_offset(const at::Tensor& tensor, std::int64_t element) {
  return (tensor.storage_offset() + element) * static_cast<std::int64_t>(tensor.itemsize());
}

char* bytes_of(const at::Tensor& chunk) {
  c10::StorageImpl* storage = chunk.storage().unsafeGetStorageImpl();
  return static_cast<char*>(storage->_mutable_data_ptr_no_checks().get()) + byte_offset(chunk, 0);
}

void read_elements(Arena& arena, const at::Tensor& whole, std::int64_t begin,
                   const at::Tensor& chunk, std::int64_t count) {
  arena.read_part(whole.storage().unsafeGetStorageImpl(), byte_offset(whole, begin),
                  bytes_of(chunk), count * static_cast<std::int64_t>(whole.itemsize()));
}

void write_elements(Arena& arena, const at::Tensor& whole, std::int64_t begin,
                    const at::Tensor& chunk, std::int64_t count) {
  arena.write_part(whole.storage().unsafeGetStorageImpl(), byte_offset(whole, begin),
                   bytes_of(chunk), count * static_cast<std::int64_t>(whole.itemsize()));
}

bool is_real(const at::Tensor& tensor) {
  return c10::isFloatingType(tensor.scalar_type()) ||
         c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
}

// Elements in the order of their addresses are then all elements, once.
bool is_dense(const at::Tensor& tensor) {
  return tensor.layout() == c10::kStrided && tensor.has_storage() && !tensor.is_quantized() &&
         !tensor.is_nested() && !tensor.is_conj() && !tensor.is_neg() &&
         tensor.is_non_overlapping_and_dense() && is_real(tensor);
}

}  // namespace

bool is_exactly_rounded(const c10::FunctionSchema& schema) {
  static constexpr std::array<std::string_view, 26> kNames = {
      "abs",   "add",        "addcdiv",    "addcmul",   "clamp",     "clamp_max", "clamp_min",
      "clone", "copy",       "div",        "fill",      "lerp",      "maximum",   "minimum",
      "mul",   "neg",        "reciprocal", "relu",      "rsub",      "sqrt",      "sub",
      "zero",  "empty_like", "full_like",  "ones_like", "zeros_like"};
  std::string_view name = schema.name();
  if (!name.starts_with("aten::")) return false;
  name.remove_prefix(6);
  if (name.ends_with('_')) name.remove_suffix(1);
  const bool is_known = std::find(kNames.begin(), kNames.end(), name) != kNames.end();
  return is_known && schema.returns().size() == 1;
}

namespace {

// What it writes is all that it does with an in-place operand.
bool overwrites(std::string_view name) {
  return name == "aten::copy_" || name == "aten::fill_" || name == "aten::zero_";
}

// Operators that may ask for another kind of result than the operand: the chunk's result would have
// it, and elements would stand elsewhere.
bool asks_for_another_layout(const OperatorInfo& info, const torch::jit::Stack& stack,
                             const Place& place) {
  if (info.name != "aten::clone" && info.kind != OperatorClass::kFactory) return false;
  const c10::IValue& format = stack.back();
  if (!format.isNone() && format.toMemoryFormat() != c10::MemoryFormat::Preserve) return true;
  if (info.kind != OperatorClass::kFactory) return false;
  // (..., dtype, layout, device, pin_memory, memory_format)
  const c10::IValue& pinned = stack[stack.size() - 2];
  const c10::IValue& device = stack[stack.size() - 3];
  const c10::IValue& layout = stack[stack.size() - 4];
  return (!pinned.isNone() && pinned.toBool()) ||
         (!device.isNone() && !place.holds(device.toDevice())) ||
         (!layout.isNone() && layout.toLayout() != c10::kStrided);
}

}  // namespace

std::optional<ChunkedCall> ChunkedCall::of(const OperatorInfo& info, const torch::jit::Stack& stack,
                                           const Place& place) {
  ChunkedCall call;
  call.arguments_ = info.arguments;
  call.first_ = stack.size() - static_cast<std::size_t>(info.arguments);
  const at::Tensor* shape = nullptr;
  for (int i = 0; i < info.arguments; ++i) {
    const c10::IValue& value = stack[call.first_ + static_cast<std::size_t>(i)];
    if (value.isTensorList()) return std::nullopt;
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    const at::Tensor& tensor = value.toTensor();
    c10::StorageImpl* storage = storage_of(tensor, place);
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
    if (call.meets_shifted(stack, tensor, place)) return std::nullopt;
    const bool is_written = info.writes_argument(i);
    const bool is_read =
        info.kind != OperatorClass::kFactory && !(is_written && overwrites(info.name));
    call.large_.push_back({i, is_read, is_written});
    if (is_written) call.returned_argument_ = i;
    if (!is_read && !is_written) continue;
    call.count(storage);
  }
  if (shape == nullptr) return std::nullopt;
  if (asks_for_another_layout(info, stack, place)) return std::nullopt;
  call.elements_ = shape->numel();
  if (call.returned_argument_ < 0) call.bytes_ += static_cast<std::int64_t>(shape->nbytes());
  return call;
}

bool ChunkedCall::meets_shifted(const torch::jit::Stack& stack, const at::Tensor& tensor,
                                const Place& place) const {
  return std::any_of(large_.begin(), large_.end(), [&](const Large& other) {
    const at::Tensor& earlier = stack[first_ + static_cast<std::size_t>(other.index)].toTensor();
    return storage_of(earlier, place) == storage_of(tensor, place) &&
           earlier.storage_offset() != tensor.storage_offset();
  });
}

void ChunkedCall::count(c10::StorageImpl* storage) {
  if (std::find(storages_.begin(), storages_.end(), storage) != storages_.end()) return;
  storages_.push_back(storage);
  bytes_ += static_cast<std::int64_t>(storage->nbytes());
}

void ChunkedCall::run(torch::jit::Stack& stack, std::int64_t chunk_bytes, Arena& arena,
                      c10::function_ref<void(torch::jit::Stack*)> run_kernel,
                      c10::function_ref<at::Tensor(const at::Tensor&)> make_result) const {
  const auto argument = [&](int i) -> c10::IValue& {
    return stack[first_ + static_cast<std::size_t>(i)];
  };
  const c10::SmallVector<at::Tensor, 4> chunks = make_chunks(stack, chunk_bytes);
  at::Tensor result;
  const std::int64_t chunk_elements = chunks.front().numel();
  for (std::int64_t begin = 0; begin < elements_; begin += chunk_elements) {
    const std::int64_t count = std::min(chunk_elements, elements_ - begin);
    torch::jit::Stack call(stack.begin() + static_cast<std::ptrdiff_t>(first_), stack.end());
    for (std::size_t k = 0; k < large_.size(); ++k) {
      const at::Tensor& whole = argument(large_[k].index).toTensor();
      if (large_[k].is_read) read_elements(arena, whole, begin, chunks[k], count);
      call[static_cast<std::size_t>(large_[k].index)] = chunks[k].narrow(0, 0, count);
    }
    run_kernel(&call);
    for (std::size_t k = 0; k < large_.size(); ++k) {
      if (!large_[k].is_written) continue;
      write_elements(arena, argument(large_[k].index).toTensor(), begin, chunks[k], count);
    }
    if (returned_argument_ >= 0) continue;
    const at::Tensor& part = call.back().toTensor();
    if (!result.defined()) result = make_result(part);
    write_elements(arena, result, begin, part, count);
  }
  c10::IValue returned =
      returned_argument_ >= 0 ? argument(returned_argument_) : c10::IValue(std::move(result));
  torch::jit::drop(stack, static_cast<std::size_t>(arguments_));
  stack.push_back(std::move(returned));
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
    const at::Tensor& whole = tensor(large);
    chunks.push_back(at::empty({count}, at::dtype(whole.scalar_type()).device(whole.device())));
  }
  return chunks;
}

}  // namespace plimsoll::detail
