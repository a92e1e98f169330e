// SPDX-License-Identifier: Apache-2.0
// Copies whose destination is not read soon.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plimsoll::device {

enum class StreamingStores : std::uint8_t { kFastest, kPlain };  // kPlain: what every processor has

// As memcpy, with stores that go past the caches: the destination's old lines are not read first,
// and what operators have in the caches stays there. The stores are done when it returns.
void copy_streaming(std::byte* to, const std::byte* from, std::int64_t bytes,
                    StreamingStores stores = StreamingStores::kFastest) noexcept;

}  // namespace plimsoll::device
