// SPDX-License-Identifier: Apache-2.0
// Operators that ran out of memory inside: laid out, and run once more.
#include <utility>

#include "plimsoll/base/bytes.h"
#include "plimsoll/base/error.h"

#include "arena.h"

namespace plimsoll::detail {

// The script's range is found by taking it and giving it back: what the operator asks for is then
// taken from it piece by piece.
void Arena::follow_script(std::shared_ptr<const OperatorScript> script) {
  if (pool_->stats().largest_free_bytes < script->bytes) return;
  const pool::BlockId whole = pool_->allocate(script->bytes);
  script_base_ = static_cast<std::byte*>(pool_->address(whole));
  pool_->deallocate(whole);
  script_ = std::move(script);
}

pool::BlockId Arena::allocate_by_script(std::int64_t bytes) {
  if (script_ == nullptr) return {};
  const std::size_t place = trace_.size();
  if (place < script_->allocations.size()) {
    const OperatorScript::Allocation& next = script_->allocations[place];
    if (next.bytes == align_up(bytes, kArenaAlignment)) {
      const pool::BlockId block = pool_->allocate_at(script_base_ + next.offset, bytes);
      if (block.valid()) return block;
    }
  }
  script_.reset();  // it goes another way, or is through
  return {};
}

bool Arena::prepare_rerun(OperatorFrame& frame) {
  const Lock lock(*this);
  // Each run has to come further than the one before, so that there is an end to them.
  if (!has_run_out_ || trace_.size() <= frame.failed_at) return false;
  frame.failed_at = trace_.size();
  const auto script = std::make_shared<const OperatorScript>(trace_.lay_out());
  c10::SmallVector<pool::BlockId, 8> blocks;
  for (auto& operand : frame.operands) {
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
  try {
    pool_->acquire({blocks.data(), blocks.size()}, {.bytes = script->bytes});
  } catch (const Error&) {
    return false;
  }
  for (auto& operand : frame.operands) operand.block = operand.managed->block;
  last_step_.shortage_bytes = 0;
  last_step_.shortage_op.clear();
  scripts_.keep(frame.script_key, script);
  follow_script(script);
  return true;
}

}  // namespace plimsoll::detail
