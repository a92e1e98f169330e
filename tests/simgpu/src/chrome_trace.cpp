// SPDX-License-Identifier: Apache-2.0
#include <ostream>
#include <string>

#include <nlohmann/json.hpp>

#include "simgpu/timeline.h"

namespace plimsoll::simgpu {

void write_chrome_trace(std::ostream& out) {
  nlohmann::json events = nlohmann::json::array();
  for (const TimedOperation& operation : timed_operations()) {
    events.push_back({{"name", operation.name},
                      {"ph", "X"},
                      {"pid", "sim:" + std::to_string(operation.device)},
                      {"tid", "stream " + std::to_string(operation.stream)},
                      {"ts", static_cast<double>(operation.begin_ns) / 1000},
                      {"dur", static_cast<double>(operation.end_ns - operation.begin_ns) / 1000},
                      {"args", {{"bytes", operation.bytes}}}});
  }
  out << nlohmann::json{{"traceEvents", events}, {"displayTimeUnit", "ns"}}.dump() << '\n';
}

}  // namespace plimsoll::simgpu
