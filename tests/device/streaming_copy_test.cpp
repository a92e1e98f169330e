// SPDX-License-Identifier: Apache-2.0
#include "device/streaming_copy.h"

#include <cstring>
#include <vector>

#include <gtest/gtest.h>

namespace plimsoll::device {
namespace {

TEST(StreamingCopy, CopiesExactlyItsBytesAtEveryAlignmentAndLength) {
  constexpr std::size_t kRoom = 5000;
  std::vector<std::byte> source(kRoom);
  for (std::size_t i = 0; i < kRoom; ++i) source[i] = static_cast<std::byte>(i * 31 + 7);
  for (std::size_t to = 0; to < 65; ++to) {
    for (const std::size_t from : {0U, 1U, 16U, 63U}) {
      for (const std::size_t bytes : {0U, 1U, 15U, 63U, 64U, 65U, 127U, 128U, 300U, 513U, 4096U}) {
        std::vector<std::byte> expected(kRoom, std::byte{0xEE});
        const std::vector<std::byte> before = expected;
        std::memcpy(expected.data() + to, source.data() + from, bytes);
        for (const auto stores : {StreamingStores::kFastest, StreamingStores::kPlain}) {
          std::vector<std::byte> copied = before;
          copy_streaming(copied.data() + to, source.data() + from, static_cast<std::int64_t>(bytes),
                         stores);
          ASSERT_EQ(copied, expected) << bytes << " bytes from " << from << " to " << to;
        }
      }
    }
  }
}

}  // namespace
}  // namespace plimsoll::device
