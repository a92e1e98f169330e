// SPDX-License-Identifier: Apache-2.0
// What `train` leaves for people: a page with curves, and a timeline for a browser.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plimsoll/session.h"

#include "command.h"

namespace plimsoll::cli {

// One HTML page without scripts or outside files: the loss (beside stock's), peak against budget
// and stock's peak, bytes moved a step, and every figure of `result`.
struct TrainPage {
  std::vector<double> losses;
  std::vector<double> stock_losses;
  std::vector<double> moved_bytes;
  std::int64_t peak_bytes = 0;
  std::int64_t budget_bytes = 0;
  std::int64_t stock_peak_bytes = 0;
};
std::string train_page_html(const TrainPage& page, const Json& result);

// The last step's operators and moves in Chrome's trace format: operators, copies out and copies in
// on a line each.
std::string chrome_trace(const std::vector<SessionEvent>& events);

}  // namespace plimsoll::cli
