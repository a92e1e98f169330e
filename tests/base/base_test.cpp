// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <limits>
#include <type_traits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plimsoll/base/bytes.h"
#include "plimsoll/base/error.h"
#include "plimsoll/base/id.h"
#include "plimsoll/base/interval.h"
#include "plimsoll/base/nearest_name.h"
#include "plimsoll/base/size.h"

namespace plimsoll {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(ParseSize, ReadsEveryUnit) {
  EXPECT_EQ(parse_size("64MiB", "--budget"), mib(64));
  EXPECT_EQ(parse_size("1.5GiB", "--budget"), gib(3) / 2);
  EXPECT_EQ(parse_size("2GB", "--budget"), 2'000'000'000);
  EXPECT_EQ(parse_size("3KB", "--budget"), 3'000);
  EXPECT_EQ(parse_size("7B", "--budget"), 7);
  EXPECT_EQ(parse_size("9223372036854775807", "--budget"),
            std::numeric_limits<std::int64_t>::max());
}

TEST(ParseSize, RefusesWithFlagValueAndWhatIsRight) {
  for (const char* text :
       {"0", "-1", "-1GiB", "9e99GiB", "99999999999GiB", "9223372036854775808", "", "GiB", "1XiB",
        "1 GiB", "0.5", "1.5.2MiB", "nan", "infMiB", "0x10"}) {
    EXPECT_THAT(
        [&] { parse_size(text, "--budget"); },
        ThrowsMessage<InvalidArgument>(::testing::AllOf(
            HasSubstr("--budget"), HasSubstr("'" + std::string(text) + "'"), HasSubstr("64MiB"))))
        << text;
  }
}

TEST(ParseSizeSpec, TellsKindsApart) {
  EXPECT_EQ(parse_size_spec("none", "-b").kind, SizeSpec::Kind::kNone);
  EXPECT_EQ(parse_size_spec("min", "-b").kind, SizeSpec::Kind::kMinimum);
  EXPECT_EQ(parse_size_spec("33%", "-b").resolve(1000, 400), 330);
  EXPECT_EQ(parse_size_spec("33%a", "-b").resolve(1000, 400), 598);
  EXPECT_EQ(parse_size_spec("12.5%", "-b").resolve(1000, 0), 125);
  EXPECT_EQ(parse_size_spec("1KiB", "-b").resolve(5, 5), 1024);
  EXPECT_EQ(parse_size_spec("0.01%", "-b").resolve(1000, 400), 1);
  EXPECT_EQ(parse_size_spec("0.01%a", "-b").resolve(1000, 400), 400);
  EXPECT_EQ(parse_size_spec("0.01%a", "-b").resolve(1000, 0), 1);
  EXPECT_THROW(parse_size_spec("min", "-b").resolve(1, 1), InvalidArgument);
}

TEST(ParseSizeSpec, RefusesBadPercentages) {
  for (const char* text : {"0%", "-5%", "1001%", "%", "5%b", "5%%", "nan%"}) {
    EXPECT_THROW(parse_size_spec(text, "--budget"), InvalidArgument) << text;
  }
}

TEST(FormatSize, KeepsThreeDigits) {
  EXPECT_EQ(format_size(0), "0 B");
  EXPECT_EQ(format_size(999), "999 B");
  EXPECT_EQ(format_size(1000), "0.98 KiB");
  EXPECT_EQ(format_size(gib(3) / 2), "1.50 GiB");
}

TEST(CheckedArithmetic, RefusesToLeave64Bits) {
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(checked_add(kMax - 1, 1), kMax);
  EXPECT_THROW(checked_add(kMax, 1), InvalidArgument);
  EXPECT_THROW(checked_multiply(kMax / 2 + 1, 2), InvalidArgument);
  EXPECT_EQ(align_up(1, 64), 64);
  EXPECT_EQ(align_up(64, 64), 64);
  EXPECT_EQ(align_up(0, 64), 0);
  EXPECT_THROW(align_up(kMax, 64), InvalidArgument);
}

TEST(Interval, IsHalfOpen) {
  constexpr Interval kA{0, 10};
  static_assert(kA.contains(0) && !kA.contains(10) && kA.length() == 10);
  static_assert(!kA.overlaps({10, 20}) && kA.overlaps({9, 10}) && !kA.overlaps({5, 5}));
  EXPECT_EQ(intersect(kA, {5, 20}), (Interval{5, 10}));
  EXPECT_TRUE(intersect(kA, {10, 20}).empty());
}

TEST(Id, KindsDoNotMix) {
  using OpId = Id<struct OpTag>;
  using ValueId = Id<struct ValueTag>;
  static_assert(!std::is_convertible_v<OpId, ValueId> && !std::is_convertible_v<int, OpId>);
  EXPECT_FALSE(OpId().valid());
  EXPECT_LT(OpId(1), OpId(2));
}

TEST(Error, CarriesItsFigures) {
  const InfeasibleBudget budget(100, 300, "op conv");
  EXPECT_EQ(budget.minimum_budget_bytes(), 300);
  EXPECT_THAT(budget.what(), HasSubstr("300 bytes needed"));
  const DeviceOutOfMemory memory("tensor x of op y", {1, 2, 3, 4});
  EXPECT_THAT(memory.what(), HasSubstr("requested 1 bytes, live 2, limit 3, largest free 4"));
  EXPECT_STREQ(HostOutOfMemory("no figures are known", {}).what(), "no figures are known");
  EXPECT_THROW(PLIMSOLL_CHECK(1 == 2, "sums"), InternalError);
}

TEST(NearestName, IsTheOneOfLeastEditDistanceAndTheFirstOfEquals) {
  EXPECT_EQ(nearest_name("trian", {"verify", "train", "plan"}), "train");
  EXPECT_EQ(nearest_name("", {"ab", "c", "d"}), "c");
  EXPECT_THROW(nearest_name("x", {}), InternalError);
}

}  // namespace
}  // namespace plimsoll
