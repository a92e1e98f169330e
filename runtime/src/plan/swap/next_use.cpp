// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/plan/next_use.h"

#include <algorithm>

namespace plimsoll::plan {
namespace {

// Longer than any step: a million operators is a second of the fastest of them.
constexpr double kForeverOps = 1e9;

double copies_out(HostCopy host_copy) { return host_copy == HostCopy::kStale ? 1.0 : 0.0; }

}  // namespace

double next_use_cost(std::int64_t size_bytes, std::int64_t ops_until_use, HostCopy host_copy) {
  const double size = static_cast<double>(size_bytes);
  if (ops_until_use == kNeverUsed) return size * copies_out(host_copy) / kForeverOps;
  const double distance = static_cast<double>(std::max<std::int64_t>(ops_until_use, 1));
  return size * (1.0 + copies_out(host_copy)) / distance;
}

double least_recent_cost(std::int64_t size_bytes, std::int64_t ops_since_use, HostCopy host_copy) {
  const double distance = static_cast<double>(std::max<std::int64_t>(ops_since_use, 0)) + 1.0;
  return static_cast<double>(size_bytes) * (1.0 + copies_out(host_copy)) / distance;
}

}  // namespace plimsoll::plan
