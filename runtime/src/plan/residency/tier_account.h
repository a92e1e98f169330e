// SPDX-License-Identifier: Apache-2.0
// Which tier below the device a storage's copy lies in.
//
// Noun: TierAccount.
#pragma once

#include <cstdint>
#include <vector>

#include "problem.h"

namespace plimsoll::plan {

// The host first; what does not fit there goes to the file tier, if there is one. A storage keeps
// its place to the end of the step.
class TierAccount {
 public:
  explicit TierAccount(const Problem& problem) : it_(problem) {}

  void start_on_host(graph::StorageId s) {
    place_.resize(it_.bytes.size());
    place_[s.index()] = kOnHost;
    host_used_ += it_.graph->size_bytes(s);
  }
  Tier place(graph::StorageId s) {
    place_.resize(it_.bytes.size());
    std::uint8_t& place = place_[s.index()];
    if (place == 0) {
      const std::int64_t bytes = it_.graph->size_bytes(s);
      const DeviceModel& device = *it_.device;
      const bool spills = device.host_bytes > 0 && host_used_ + bytes > device.host_bytes &&
                          device.file_write_bytes_per_second > 0;
      if (!spills) host_used_ += bytes;
      place = spills ? kInFile : kOnHost;
    }
    return place == kInFile ? Tier::kFile : Tier::kHost;
  }

 private:
  static constexpr std::uint8_t kOnHost = 1;
  static constexpr std::uint8_t kInFile = 2;
  const Problem& it_;
  std::vector<std::uint8_t> place_;  // by storage; 0: not copied yet
  std::int64_t host_used_ = 0;
};

}  // namespace plimsoll::plan
