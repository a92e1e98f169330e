// SPDX-License-Identifier: Apache-2.0
// First decisions as a few numbers, so that what did well for one budget can be varied for the
// next: on a graph of thousands of gaps a step on one of these axes moves hundreds of them.
//
// Nouns: Mix, MixPoint.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "choose.h"

namespace plimsoll::plan {

struct Mix {
  double link_share = 0;
  int link_lag = kLinkWindows;
  double target = 1;   // of the budget, pinned bytes apart
  double segment = 0;  // the same; 0: one segment
  OffloadOrder order = OffloadOrder::kDearest;
  bool keep_rebuilt = true;
};

// A mix on a grid, and along which axis a climb goes on from it.
class MixPoint {
 public:
  static constexpr int kAxes = 6;
  int axis = 0;
  // Good places to begin a climb.
  static const std::vector<MixPoint>& starts();
  Mix mix() const;
  // One step up or down an axis; nothing at its end.
  std::optional<MixPoint> neighbour(int axis, int step) const;

 private:
  std::array<int, kAxes> at_ = {4, 1, 1, 2, 0, 0};
};

}  // namespace plimsoll::plan
