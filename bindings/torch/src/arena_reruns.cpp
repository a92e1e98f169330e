// SPDX-License-Identifier: Apache-2.0
// Operators that ran out of memory inside: laid out, and run again.
#include <utility>

#include "plimsoll/base/bytes.h"
#include "plimsoll/base/error.h"

#include "arena.h"

namespace plimsoll::detail {

void Arena::follow_script(std::shared_ptr<const OperatorScript> script) {
  script_base_ = static_cast<std::byte*>(pool_->find_hole(script->bytes));
  if (script_base_ != nullptr) script_ = std::move(script);
}

pool::BlockId Arena::allocate_by_script(std::int64_t bytes) {
  if (script_ == nullptr) return {};
  const std::size_t place = trace_.size();
  if (place < script_->allocations.size()) {
    const OperatorScript::Allocation& next = script_->allocations[place];
    if (next.bytes == place_.rounded(static_cast<std::size_t>(bytes))) {
      const pool::BlockId block = pool_->allocate_at(script_base_ + next.offset, bytes);
      if (block.valid()) return block;
    }
  }
  script_.reset();  // it goes another way, or is through
  return {};
}

bool Arena::prepare_rerun(OperatorFrame& frame) noexcept {
  const Lock lock(*this);
  // Each run has to come further than the one before, so that there is an end to them.
  if (!has_run_out_ || trace_.size() <= frame.failed_at) return false;
  frame.failed_at = trace_.size();
  try {
    const auto script = std::make_shared<const OperatorScript>(trace_.lay_out());
    if (!hold_again(frame, script->bytes)) return false;
    last_step_.shortage_bytes = 0;
    last_step_.shortage_op.clear();
    scripts_.keep(frame.script_key, script);
    follow_script(script);
    return true;
  } catch (const std::exception&) {
    return false;  // the first failure is the one to tell of
  }
}

// Lets the operands go, so that they may be slid, and takes them again beside one hole.
bool Arena::hold_again(OperatorFrame& frame, std::int64_t hole_bytes) {
  c10::SmallVector<pool::BlockId, 8> blocks;
  for (const auto& operand : frame.operands) {
    if (!operand.block.valid()) continue;
    if (operand.managed->block != operand.block) return false;
    blocks.push_back(operand.block);
  }
  pool_->release({blocks.data(), blocks.size()});
  for (auto& operand : frame.operands) operand.block = {};
  trace_.clear();
  has_run_out_ = false;
  op_live_bytes_ = op_peak_bytes_ = op_largest_bytes_ = 0;
  script_.reset();
  pool_->acquire({blocks.data(), blocks.size()}, {.bytes = hole_bytes});
  for (auto& operand : frame.operands) operand.block = operand.managed->block;
  return true;
}

}  // namespace plimsoll::detail
