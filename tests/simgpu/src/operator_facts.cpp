// SPDX-License-Identifier: Apache-2.0
#include "operator_facts.h"

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>

namespace plimsoll::simgpu {
namespace {

template <std::size_t N>
bool is_one_of(std::string_view name, const std::array<std::string_view, N>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Batch norms change running statistics without saying so.
void add_silent_writes(OperatorFacts& facts, std::string_view name) {
  const auto mark = [&](std::size_t first) {
    facts.writes.at(first) = true;
    facts.writes.at(first + 1) = true;
  };
  if (name == "aten::native_batch_norm") mark(3);
  if (name == "aten::batch_norm_update_stats") mark(1);
}

// Sizes of results depend on what host tensors hold.
bool depends_on_host_values(std::string_view name) {
  static constexpr std::array<std::string_view, 3> kNames = {
      "aten::_pack_padded_sequence", "aten::_ctc_loss", "aten::repeat_interleave"};
  return is_one_of(name, kNames);
}

bool takes_host_tensors(std::string_view name) {
  static constexpr std::array<std::string_view, 4> kNames = {
      "aten::_pack_padded_sequence", "aten::_ctc_loss", "aten::_ctc_loss_backward",
      "aten::set_source"};
  return is_one_of(name, kNames);
}

bool returns_tensors_only(const c10::FunctionSchema& schema) {
  return std::all_of(schema.returns().begin(), schema.returns().end(), [](const auto& result) {
    const std::string type = result.type()->str();
    return type == "Tensor" || type == "Tensor[]" || type == "Tensor?";
  });
}

std::unique_ptr<OperatorFacts> read(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  auto facts = std::make_unique<OperatorFacts>();
  facts->name = schema.name();
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    const auto* alias = argument.alias_info();
    facts->writes.push_back(alias != nullptr && alias->isWrite());
    if (argument.type()->str().starts_with("Generator")) {
      facts->generator_argument = static_cast<int>(i);
    }
  }
  add_silent_writes(*facts, schema.name());
  facts->is_synchronous = op.hasTag(at::Tag::dynamic_output_shape) ||
                          op.hasTag(at::Tag::data_dependent_output) ||
                          depends_on_host_values(schema.name()) || !returns_tensors_only(schema);
  const bool is_in_place = schema.name().back() == '_' && !schema.name().ends_with("__");
  facts->ignores_doubles = is_in_place || op.hasTag(at::Tag::pointwise);
  facts->takes_host_tensors = takes_host_tensors(schema.name());
  if (!schema.overload_name().empty()) facts->name += "." + schema.overload_name();
  return facts;
}

}  // namespace

const OperatorFacts& facts_of(const c10::OperatorHandle& op) {
  static std::mutex mutex;
  static auto* const known =
      new std::unordered_map<const c10::FunctionSchema*, std::unique_ptr<OperatorFacts>>();
  const std::lock_guard lock(mutex);
  auto& facts = (*known)[&op.schema()];
  if (facts == nullptr) facts = read(op);
  return *facts;
}

}  // namespace plimsoll::simgpu
