// SPDX-License-Identifier: Apache-2.0
// What a buffer occupies when: its lifetime cut at its gaps.
#pragma once

#include <algorithm>
#include <vector>

#include "plimsoll/plan/layout.h"

namespace plimsoll::plan::layout_detail {

inline std::vector<LayoutGap> sorted_gaps(const LayoutBuffer& buffer) {
  std::vector<LayoutGap> gaps = buffer.gaps;
  std::sort(gaps.begin(), gaps.end(), [](const LayoutGap& a, const LayoutGap& b) {
    return a.time.begin != b.time.begin ? a.time.begin < b.time.begin : a.time.end < b.time.end;
  });
  return gaps;
}

// Calls visit(time, kept) for each stretch in which the buffer occupies something, in order of
// time; `kept` is relative to its offset. The gaps must have passed check_layout_problem.
template <typename Visit>
void for_each_piece(const LayoutBuffer& buffer, Visit&& visit) {
  if (buffer.size_bytes <= 0 || buffer.lifetime.empty()) return;
  const Interval whole{0, buffer.size_bytes};
  if (buffer.gaps.empty()) {
    visit(buffer.lifetime, whole);
    return;
  }
  std::int64_t at = buffer.lifetime.begin;
  for (const LayoutGap& gap : sorted_gaps(buffer)) {
    if (gap.time.empty()) continue;
    if (at < gap.time.begin) visit(Interval{at, gap.time.begin}, whole);
    if (!gap.kept.empty()) visit(gap.time, gap.kept);
    at = gap.time.end;
  }
  if (at < buffer.lifetime.end) visit(Interval{at, buffer.lifetime.end}, whole);
}

}  // namespace plimsoll::plan::layout_detail
