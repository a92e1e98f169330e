// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/plan/access_sequence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plimsoll/base/error.h"
#include "plimsoll/plan/next_use.h"

namespace plimsoll::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(AccessSequence, MergesTouchesAndFindsTheNextOneAcrossTheEndOfTheStep) {
  AccessSequenceBuilder builder;
  const SwapOpId first = builder.add_op(0, "forward");
  const SwapOpId second = builder.add_op(8);
  const SwapOpId third = builder.add_op(0);
  const SwapStorageId weight = builder.add_storage(4, StorageKind::kPersistent);
  const SwapStorageId loss = builder.add_storage(2, StorageKind::kTransient);
  builder.access(third, weight, Access::kWrite);
  builder.access(first, weight, Access::kRead);
  builder.access(third, weight, Access::kRead);
  builder.access(second, loss, Access::kRead);
  builder.access(first, loss, Access::kRead, Lap::kPreviousStep);
  builder.release_after(loss, second, Lap::kPreviousStep);
  const AccessSequence sequence = std::move(builder).build();

  EXPECT_THAT(sequence.accesses(weight), ElementsAre(TimedAccess{0, false}, TimedAccess{2, true}));
  EXPECT_EQ(sequence.next_access(weight, 0), 2);
  EXPECT_EQ(sequence.next_access(weight, 2), 3);
  EXPECT_THAT(sequence.accesses(loss), ElementsAre(TimedAccess{1, true}, TimedAccess{3, false}));
  EXPECT_EQ(sequence.next_access(loss, 1), 3);
  EXPECT_EQ(sequence.next_access(loss, 3), kNeverAccessed);
  EXPECT_EQ(sequence.life(loss).death, 4);
  EXPECT_EQ(sequence.persistent_bytes(), 4);
  EXPECT_EQ(sequence.op_name(first), "forward");
}

TEST(AccessSequence, RefusesWhatCannotBeAStep) {
  const auto building = [](auto fill) {
    return [fill] {
      AccessSequenceBuilder builder;
      fill(builder);
      std::move(builder).build();
    };
  };
  using B = AccessSequenceBuilder;
  const auto throws = [](const char* text) {
    return ThrowsMessage<InvalidArgument>(HasSubstr(text));
  };
  EXPECT_THAT(building([](B&) {}), throws("needs an operator"));
  EXPECT_THAT(building([](B& b) { b.add_op(-1); }), throws("-1 bytes of scratch"));
  EXPECT_THAT(building([](B& b) { b.add_storage(-5, StorageKind::kPersistent); }),
              throws("-5 bytes"));
  EXPECT_THAT(building([](B& b) {
                b.add_op(0);
                b.add_storage(1, StorageKind::kTransient);
              }),
              throws("who makes it"));
  EXPECT_THAT(
      building([](B& b) { b.access(b.add_op(0), SwapStorageId(std::size_t{3}), Access::kRead); }),
      throws("storage 3 is none of the 0"));
  EXPECT_THAT(building([](B& b) {
                b.access(SwapOpId(std::size_t{0}), b.add_storage(1, StorageKind::kPersistent),
                         Access::kRead);
              }),
              throws("operator 0 is none of the 0"));
  EXPECT_THAT(building([](B& b) {
                b.access(b.add_op(0), b.add_storage(1, StorageKind::kPersistent), Access::kRead,
                         Lap::kPreviousStep);
              }),
              throws("persistent"));
  EXPECT_THAT(building([](B& b) {
                b.release_after(b.add_storage(1, StorageKind::kPersistent), b.add_op(0));
              }),
              throws("never released"));
  EXPECT_THAT(building([](B& b) {
                const SwapOpId first = b.add_op(0);
                const SwapStorageId s = b.add_storage(1, StorageKind::kTransient);
                b.access(first, s, Access::kWrite);
                b.access(b.add_op(0), s, Access::kRead);
                b.release_after(s, first);
              }),
              throws("released after position 0 but touched at 1"));
  EXPECT_THAT(building([](B& b) {
                b.access(b.add_op(0), b.add_storage(1, StorageKind::kTransient), Access::kRead,
                         Lap::kPreviousStep);
              }),
              throws("only in the step after"));
  EXPECT_THAT(building([](B& b) {
                b.add_op(0);
                b.add_storage(std::int64_t{1} << 60, StorageKind::kPersistent);
                b.add_storage(1, StorageKind::kPersistent);
              }),
              throws("exceed 2^60"));
}

TEST(NextUse, PrefersTheFarTheCleanAndTheSmall) {
  const auto cost = [](std::int64_t size, std::int64_t distance, HostCopy copy) {
    return next_use_cost(size, distance, copy);
  };
  EXPECT_LT(cost(8, 100, HostCopy::kStale), cost(8, 10, HostCopy::kStale));
  EXPECT_LT(cost(8, 10, HostCopy::kValid), cost(8, 10, HostCopy::kStale));
  EXPECT_LT(cost(8, 10, HostCopy::kValid), cost(9, 10, HostCopy::kValid));
  EXPECT_LT(cost(8, kNeverUsed, HostCopy::kStale), cost(8, 1000000, HostCopy::kValid));
  EXPECT_EQ(cost(8, kNeverUsed, HostCopy::kValid), 0);
  EXPECT_DOUBLE_EQ(cost(8, 10, HostCopy::kStale) + cost(4, 10, HostCopy::kStale),
                   cost(12, 10, HostCopy::kStale));
  EXPECT_LT(least_recent_cost(8, 50, HostCopy::kStale), least_recent_cost(8, 5, HostCopy::kStale));
  EXPECT_LT(least_recent_cost(8, 5, HostCopy::kValid), least_recent_cost(8, 5, HostCopy::kStale));
}

}  // namespace
}  // namespace plimsoll::plan
