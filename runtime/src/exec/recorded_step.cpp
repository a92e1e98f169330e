// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/exec/recorded_step.h"

#include <algorithm>

#include "plimsoll/base/bytes.h"

namespace plimsoll::exec {

bool RecordedStep::escapes(std::size_t index) const {
  const std::int64_t death = blocks[index].death;
  return death == kNeverFreed || death > length() + static_cast<std::int64_t>(index);
}

void RecordedStep::forget_late_deaths() {
  for (RecordedBlock& block : blocks)
    if (block.death > length()) block.death = kNeverFreed;
}

bool same_structure(const RecordedStep& a, const RecordedStep& b) {
  return std::equal(a.blocks.begin(), a.blocks.end(), b.blocks.begin(), b.blocks.end(),
                    [](const RecordedBlock& x, const RecordedBlock& y) {
                      return x.key == y.key && x.bytes / 2 <= y.bytes && y.bytes / 2 <= x.bytes;
                    });
}

bool same_sizes(const RecordedStep& a, const RecordedStep& b, std::int64_t alignment_bytes) {
  return std::equal(a.blocks.begin(), a.blocks.end(), b.blocks.begin(), b.blocks.end(),
                    [=](const RecordedBlock& x, const RecordedBlock& y) {
                      return x.key == y.key && align_up(x.bytes, alignment_bytes) ==
                                                   align_up(y.bytes, alignment_bytes);
                    });
}

}  // namespace plimsoll::exec
