// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"
#include "plimsoll/plan/residency.h"

#include "rung.h"

namespace plimsoll::plan {
namespace {

constexpr std::pair<Policy, std::string_view> kPolicyNames[] = {
    {Policy::kAuto, "auto"},
    {Policy::kNone, "none"},
    {Policy::kLiveness, "liveness"},
    {Policy::kSuperNeurons, "superneurons"},
    {Policy::kRecomputeOnly, "recompute-only"},
    {Policy::kOffloadOnly, "offload-only"},
    {Policy::kOptimal, "optimal"},
    {Policy::kBaselineChen, "baseline-chen"},
    {Policy::kBaselineDtr, "baseline-dtr"},
    {Policy::kBaselineCapuchin, "baseline-capuchin"},
    {Policy::kBaselinePofo, "baseline-pofo"},
    {Policy::kBaselineCheckmate, "baseline-checkmate"}};

}  // namespace

std::string_view policy_name(Policy policy) {
  for (const auto& [value, name] : kPolicyNames)
    if (value == policy) return name;
  return "?";
}

Policy parse_policy(std::string_view name, std::string_view flag) {
  std::string names;
  for (const auto& [value, known] : kPolicyNames) {
    if (known == name) return value;
    names += (names.empty() ? "" : ", ") + std::string(known);
  }
  throw InvalidArgument(fmt::format("{} {}: expected one of {}", flag, name, names));
}

std::vector<Policy> all_policies() {
  std::vector<Policy> policies;
  for (const auto& [value, name] : kPolicyNames) policies.push_back(value);
  return policies;
}

bool may_recompute(Policy policy) {
  return policy != Policy::kOffloadOnly && policy != Policy::kNone && policy != Policy::kLiveness;
}

bool may_offload(Policy policy) {
  switch (policy) {
    case Policy::kAuto:
    case Policy::kSuperNeurons:
    case Policy::kOffloadOnly:
    case Policy::kOptimal:
    case Policy::kBaselineCapuchin:
    case Policy::kBaselinePofo:
      return true;
    default:
      return false;
  }
}

}  // namespace plimsoll::plan
