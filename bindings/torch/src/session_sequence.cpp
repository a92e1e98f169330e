// SPDX-License-Identifier: Apache-2.0
// What a session can say of the sequence it has learnt.
#include "plimsoll/plan/access_sequence_json.h"
#include "plimsoll/plan/swap_bound.h"

#include "session_impl.h"

namespace plimsoll {

std::int64_t Session::moved_lower_bound_bytes() const {
  const auto known = impl_->arena().last_known();
  if (known == nullptr) return 0;
  return plan::swap_lower_bound(known->sequence(), impl_->arena().movable_budget_bytes()).bytes;
}

std::string Session::access_sequence_json() const {
  const auto known = impl_->arena().last_known();
  return known == nullptr ? "" : plan::access_sequence_to_json(known->sequence());
}

}  // namespace plimsoll
