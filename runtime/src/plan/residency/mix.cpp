// SPDX-License-Identifier: Apache-2.0
#include "mix.h"

#include <iterator>

namespace plimsoll::plan {
namespace {

constexpr double kShares[] = {0, 0.15, 0.3, 0.6, 0.95, 1.3};
constexpr int kLags[] = {2, 8, kLinkWindows};
constexpr double kTargets[] = {1.0, 0.9, 0.75, 0.5, 0.3};
constexpr double kSegments[] = {0, 0.05, 0.15, 0.4};
constexpr OffloadOrder kOrders[] = {OffloadOrder::kDearest, OffloadOrder::kLongest};
constexpr bool kKeeps[] = {true, false};
constexpr std::array<std::size_t, MixPoint::kAxes> kLengths = {
    std::size(kShares),   std::size(kLags),   std::size(kTargets),
    std::size(kSegments), std::size(kOrders), std::size(kKeeps)};

}  // namespace

Mix MixPoint::mix() const {
  return {kShares[at_[0]],   kLags[at_[1]],   kTargets[at_[2]],
          kSegments[at_[3]], kOrders[at_[4]], kKeeps[at_[5]]};
}

const std::vector<MixPoint>& MixPoint::starts() {
  static const std::vector<MixPoint> kStarts = [] {
    constexpr std::array<int, kAxes> kPlaces[] = {{4, 1, 1, 2, 0, 0}, {4, 1, 2, 3, 0, 0},
                                                  {4, 1, 3, 3, 0, 0}, {4, 0, 1, 0, 1, 0},
                                                  {5, 0, 1, 0, 0, 0}, {5, 1, 1, 0, 0, 0}};
    std::vector<MixPoint> starts;
    for (const auto& place : kPlaces) starts.emplace_back().at_ = place;
    return starts;
  }();
  return kStarts;
}

std::optional<MixPoint> MixPoint::neighbour(int axis, int step) const {
  MixPoint other = *this;
  int& at = other.at_[std::size_t(axis)];
  at += step;
  if (at < 0 || at >= static_cast<int>(kLengths[std::size_t(axis)])) return std::nullopt;
  return other;
}

}  // namespace plimsoll::plan
