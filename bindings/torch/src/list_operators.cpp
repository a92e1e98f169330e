// SPDX-License-Identifier: Apache-2.0
#include "list_operators.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/jit_type.h>

#include "plimsoll/base/bytes.h"

#include "tensor_storages.h"

namespace plimsoll::detail {
namespace {

using Part = ListShape::Part;

bool is_list_operator(std::string_view name) {
  return name.starts_with("aten::_foreach_") || name.starts_with("aten::_fused_") ||
         name.starts_with("aten::_amp_foreach_");
}

bool is_tensor_list(const c10::Type& type) {
  return type.kind() == c10::TypeKind::ListType &&
         type.containedType(0)->kind() == c10::TypeKind::TensorType;
}

// Scalar[] only: lists of integers (int[] normalized_shape) are sizes.
bool is_number_list(const c10::Type& type) {
  return type.kind() == c10::TypeKind::ListType &&
         type.containedType(0)->kind() == c10::TypeKind::NumberType;
}

std::size_t length(const c10::IValue& list) { return list.toListRef().size(); }

c10::IValue cut_list(const c10::IValue& whole, std::size_t begin, std::size_t end) {
  const auto entries = whole.toListRef();
  if (entries.empty()) return whole;
  c10::impl::GenericList slice(whole.toList().elementType());
  slice.reserve(end - begin);
  for (std::size_t i = begin; i < end; ++i) slice.push_back(entries[i]);
  return slice;
}

// Distinct storages of some entries, in bytes rounded as the arena rounds them.
class EntryBytes {
 public:
  explicit EntryBytes(const Place& place) : place_(&place) {}
  void add(const c10::IValue& value) {
    visit_storages(value, *place_, [&](c10::StorageImpl* storage) {
      if (std::find(seen_.begin(), seen_.end(), storage) != seen_.end()) return;
      seen_.push_back(storage);
      bytes_ += place_->rounded(storage->nbytes());
    });
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  const Place* place_;
  c10::SmallVector<c10::StorageImpl*, 8> seen_;
  std::int64_t bytes_ = 0;
};

}  // namespace

ListShape list_shape(const c10::FunctionSchema& schema) {
  ListShape shape;
  if (!is_list_operator(schema.name())) return shape;
  bool has_list = false;
  for (const c10::Argument& argument : schema.arguments()) {
    const c10::Type& type = *argument.type();
    Part part = Part::kWhole;
    if (is_tensor_list(type) || is_number_list(type)) part = Part::kList;
    if (type.kind() == c10::TypeKind::TensorType && argument.name() == "scalars")
      part = Part::kScalars;
    has_list = has_list || is_tensor_list(type);
    shape.arguments.push_back(part);
  }
  for (const c10::Argument& result : schema.returns()) {
    const bool is_list = is_tensor_list(*result.type());
    shape.returns.push_back(is_list ? Part::kList : Part::kChained);
    if (is_list) continue;
    // A single tensor beside the lists: what was found so far, as in found_inf -> found_inf_out.
    std::string_view name = result.name();
    if (name.ends_with("_out")) name.remove_suffix(4);
    const auto index = schema.argumentIndexWithName(name);
    if (!index.has_value()) return {};
    shape.chained_argument = *index;
    shape.arguments[static_cast<std::size_t>(*index)] = Part::kChained;
  }
  return has_list ? shape : ListShape{};
}

ListSlices::ListSlices(const ListShape& shape, const torch::jit::Stack& stack, std::size_t first)
    : shape_(shape), whole_(stack.begin() + static_cast<std::ptrdiff_t>(first), stack.end()) {}

std::optional<ListSlices> ListSlices::cut(const ListShape& shape, const torch::jit::Stack& stack,
                                          const Place& place, std::int64_t limit_bytes) {
  const std::size_t first = stack.size() - shape.arguments.size();
  const auto argument = [&](std::size_t i) -> const c10::IValue& { return stack[first + i]; };
  std::size_t entries = 0;
  c10::SmallVector<std::size_t, 8> lists;
  for (std::size_t i = 0; i < shape.arguments.size(); ++i) {
    if (shape.arguments[i] == Part::kScalars) {
      const at::Tensor& scalars = argument(i).toTensor();
      if (scalars.dim() != 1) return std::nullopt;
    }
    if (shape.arguments[i] != Part::kList) continue;
    const std::size_t size = length(argument(i));
    // The kernel says what is wrong with lists that do not match.
    if (size != 0 && entries != 0 && size != entries) return std::nullopt;
    entries = std::max(entries, size);
    if (size != 0) lists.push_back(i);
  }
  if (entries < 2) return std::nullopt;
  const auto results = std::count(shape.returns.begin(), shape.returns.end(), Part::kList);

  std::vector<std::size_t> ends;
  std::int64_t largest = 0;
  EntryBytes slice(place);
  std::int64_t result_bytes = 0;
  std::size_t begin = 0;
  const auto add = [&](std::size_t entry) {
    for (const std::size_t list : lists) slice.add(argument(list).toListRef()[entry]);
    const c10::IValue& model = argument(lists.front()).toListRef()[entry];
    if (model.isTensor()) result_bytes += results * place.rounded(model.toTensor().nbytes());
  };
  for (std::size_t entry = 0; entry < entries; ++entry) {
    const std::int64_t operand_bytes = slice.bytes();
    add(entry);
    if (slice.bytes() + result_bytes > limit_bytes && entry > begin) {
      largest = std::max(largest, operand_bytes);
      ends.push_back(entry);
      begin = entry;
      slice = EntryBytes(place);
      result_bytes = 0;
      add(entry);
    }
  }
  largest = std::max(largest, slice.bytes());
  if (ends.empty()) return std::nullopt;
  ends.push_back(entries);
  ListSlices slices(shape, stack, first);
  slices.ends_ = std::move(ends);
  slices.largest_bytes_ = largest;
  return slices;
}

torch::jit::Stack ListSlices::arguments(std::size_t i) const {
  const std::size_t begin = i == 0 ? 0 : ends_[i - 1];
  torch::jit::Stack arguments;
  for (std::size_t k = 0; k < whole_.size(); ++k) {
    switch (shape_.arguments[k]) {
      case Part::kList:
        arguments.push_back(cut_list(whole_[k], begin, ends_[i]));
        break;
      case Part::kScalars:
        arguments.emplace_back(whole_[k].toTensor().narrow(
            0, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(ends_[i] - begin)));
        break;
      case Part::kWhole:
      case Part::kChained:
        arguments.push_back(whole_[k]);
        break;
    }
  }
  return arguments;
}

void ListSlices::add_returns(torch::jit::Stack&& returns) {
  for (std::size_t i = 0; i < returns.size(); ++i) {
    if (shape_.returns[i] == Part::kChained) {
      whole_[static_cast<std::size_t>(shape_.chained_argument)] = returns[i];
    }
  }
  if (joined_.empty()) {
    joined_ = std::move(returns);
    return;
  }
  for (std::size_t i = 0; i < returns.size(); ++i) {
    if (shape_.returns[i] == Part::kList) {
      auto all = joined_[i].toTensorList();
      for (const at::Tensor& tensor : returns[i].toTensorVector()) all.push_back(tensor);
      joined_[i] = std::move(all);
    } else {
      joined_[i] = std::move(returns[i]);
    }
  }
}

torch::jit::Stack ListSlices::joined() { return std::move(joined_); }

}  // namespace plimsoll::detail
