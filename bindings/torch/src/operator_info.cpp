// SPDX-License-Identifier: Apache-2.0
#include "operator_info.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>

#include "chunked_operators.h"

namespace plimsoll::detail {
namespace {

std::uint64_t fnv1a(std::string_view text, std::uint64_t hash = 14695981039346656037ULL) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash;
}

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

template <std::size_t kCount>
bool is_one_of(std::string_view name, const std::array<std::string_view, kCount>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Every return aliases an argument that is not written: the operator makes views.
bool makes_views(const c10::FunctionSchema& schema) {
  const auto is_plain_alias = [](const c10::Argument& argument) {
    return argument.alias_info() != nullptr && !argument.alias_info()->isWrite();
  };
  const bool writes = std::any_of(
      schema.arguments().begin(), schema.arguments().end(), [](const c10::Argument& argument) {
        return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
      });
  return !writes && !schema.returns().empty() &&
         std::all_of(schema.returns().begin(), schema.returns().end(), is_plain_alias);
}

bool takes_storage(const c10::FunctionSchema& schema) {
  return std::any_of(schema.arguments().begin(), schema.arguments().end(),
                     [](const c10::Argument& argument) {
                       return argument.type()->kind() == c10::TypeKind::StorageType;
                     });
}

// Operators without an alias annotation that say so, or that have one and yet read no bytes.
bool is_metadata(const c10::OperatorHandle& op, std::string_view name) {
  static constexpr std::array<std::string_view, 10> kNames = {
      "aten::_unsafe_view",
      "aten::is_same_size",
      "aten::_has_same_storage_numel",
      "aten::size",
      "aten::stride",
      "aten::sym_size",
      "aten::sym_stride",
      "aten::sym_numel",
      "aten::sym_storage_offset",
      "aten::_has_compatible_shallow_copy_type"};
  // resize_ and resize_as_ carry the tag of in-place views too, but move bytes; set_ asks a storage
  // for its address.
  if (op.hasTag(at::Tag::inplace_view))
    return !starts_with(name, "aten::resize") && !takes_storage(op.schema());
  return is_one_of(name, kNames) || makes_views(op.schema());
}

// Tensors, optional ones and lists of them.
std::size_t tensor_arguments(const c10::FunctionSchema& schema) {
  return static_cast<std::size_t>(std::count_if(
      schema.arguments().begin(), schema.arguments().end(), [](const c10::Argument& argument) {
        return argument.type()->str().find("Tensor") != std::string::npos;
      }));
}

bool is_factory(std::string_view name) {
  const auto suffix = std::string_view("_like");
  return starts_with(name, "aten::new_") ||
         (starts_with(name, "aten::") && name.size() > suffix.size() &&
          name.substr(name.size() - suffix.size()) == suffix);
}

// The schema alone where no back end has a kernel of its own.
bool is_composite(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
         !op.hasKernelForDispatchKey(c10::DispatchKey::CPU);
}

// Arguments that are written although the schema does not say so.
std::uint64_t silent_writes(const c10::FunctionSchema& schema) {
  static constexpr std::array<std::string_view, 6> kBatchNorms = {
      "aten::native_batch_norm",       "aten::cudnn_batch_norm",
      "aten::miopen_batch_norm",       "aten::batch_norm_update_stats",
      "aten::batch_norm_gather_stats", "aten::batch_norm_gather_stats_with_counts"};
  if (!is_one_of(schema.name(), kBatchNorms)) return 0;
  std::uint64_t writes = 0;
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    const std::string& argument = schema.arguments()[i].name();
    if (argument == "running_mean" || argument == "running_var") writes |= 1ULL << i;
  }
  return writes;
}

std::unique_ptr<OperatorInfo> read_schema(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  auto info = std::make_unique<OperatorInfo>();
  info->name = schema.name();
  info->hash = fnv1a(schema.overload_name(), fnv1a(schema.name()));
  info->arguments = static_cast<int>(schema.arguments().size());
  info->returns = static_cast<int>(schema.returns().size());
  info->writes = silent_writes(schema);
  for (int i = 0; i < info->arguments; ++i) {
    const c10::Argument& argument = schema.arguments()[static_cast<std::size_t>(i)];
    const auto* alias = argument.alias_info();
    if (alias != nullptr && alias->isWrite()) info->writes |= 1ULL << std::min(i, 63);
    const bool is_tensor = argument.type()->kind() == c10::TypeKind::TensorType;
    if (is_tensor && i < 63) info->plain_tensors |= 1ULL << i;
  }
  info->lists = list_shape(schema);
  info->can_chunk = is_exactly_rounded(schema);
  if (is_composite(op)) {
    info->kind = OperatorClass::kComposite;
  } else if (is_metadata(op, info->name)) {
    info->kind = OperatorClass::kMetadata;
  } else if (is_factory(info->name) && info->writes == 0 && tensor_arguments(schema) <= 1) {
    info->kind = OperatorClass::kFactory;
  }
  // A schema made from a C++ signature says nothing of what is written.
  if (schema.aliasAnalysis() == c10::AliasAnalysisKind::CONSERVATIVE) info->writes = ~0ULL;
  // Others' kernels may have effects that no schema shows.
  const bool is_known = starts_with(info->name, "aten::") || starts_with(info->name, "mkldnn::");
  info->can_rerun = is_known && info->writes == 0 && info->kind != OperatorClass::kComposite &&
                    !op.hasTag(at::Tag::nondeterministic_seeded);
  info->is_lazy_clone = info->name == "aten::_lazy_clone";
  info->is_collective =
      starts_with(info->name, "c10d::") || starts_with(info->name, "_c10d_functional::");
  return info;
}

}  // namespace

const OperatorInfo& OperatorInfos::of(const c10::OperatorHandle& op) {
  const c10::FunctionSchema* schema = &op.schema();
  const std::lock_guard lock(mutex_);
  auto& info = infos_[schema];
  if (info == nullptr) info = read_schema(op);
  return *info;
}

}  // namespace plimsoll::detail
