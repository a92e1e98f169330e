// SPDX-License-Identifier: Apache-2.0
// Each kind of race is shown to the checker, which has to see it, and then put in order, which it
// has to accept.
#include <functional>
#include <string>
#include <vector>

#include "device_fixture.h"

namespace plimsoll::simgpu {
namespace {

struct Streams {
  c10::Stream first = default_stream();
  c10::Stream second = pool_stream();
};

void on(const c10::Stream& stream, const std::function<void()>& work) {
  const c10::StreamGuard guard(stream);
  work();
}

void order(const c10::Stream& before, const c10::Stream& after) {
  c10::Event event(c10::kPrivateUse1);
  event.record(before);
  event.block(after);
}

class Races : public OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    data = torch::zeros({64}, on_sim());
    other = torch::zeros({64}, on_sim());
    third = torch::zeros({64}, on_sim());
    guard_impl().synchronizeDevice(0);
  }
  // Those so far; what comes after is in order.
  std::vector<Race> races() {
    std::vector<Race> found = take_races();
    guard_impl().synchronizeDevice(0);
    return found;
  }
  torch::Tensor data;
  torch::Tensor other;
  torch::Tensor third;
  Streams streams;
};

TEST_F(Races, AReadOfWhatAnotherStreamWritesIsOne) {
  on(streams.first, [&] { data.add_(1); });
  on(streams.second, [&] { other.copy_(data); });
  const std::vector<Race> found = races();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_TRUE(found[0].first_writes);
  EXPECT_FALSE(found[0].second_writes);
  EXPECT_NE(found[0].first_operation.find("add"), std::string::npos) << found[0].text();
  EXPECT_NE(found[0].second_operation.find("copy"), std::string::npos) << found[0].text();
  EXPECT_EQ(found[0].first_stream, "sim:0 stream 0");
  EXPECT_EQ(found[0].second_stream, "sim:0 stream " + std::to_string(streams.second.id()));
  EXPECT_EQ(found[0].end - found[0].begin, 256U);
}

TEST_F(Races, AnEventPutsTheReadInOrder) {
  on(streams.first, [&] { data.add_(1); });
  order(streams.first, streams.second);
  on(streams.second, [&] { other.copy_(data); });
}

TEST_F(Races, AnEventRecordedTooEarlyDoesNot) {
  c10::Event early(c10::kPrivateUse1);
  early.record(streams.first);
  on(streams.first, [&] { data.add_(1); });
  early.block(streams.second);
  on(streams.second, [&] { other.copy_(data); });
  EXPECT_EQ(races().size(), 1U);
}

TEST_F(Races, AWriteOfWhatAnotherStreamReadsIsOne) {
  on(streams.first, [&] { other.copy_(data); });
  on(streams.second, [&] { data.zero_(); });
  const std::vector<Race> found = races();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_FALSE(found[0].first_writes);
  EXPECT_TRUE(found[0].second_writes);
}

TEST_F(Races, TwoWritesAreOne) {
  on(streams.first, [&] { data.zero_(); });
  on(streams.second, [&] { data.zero_(); });
  const std::vector<Race> found = races();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_TRUE(found[0].first_writes && found[0].second_writes);
}

TEST_F(Races, TwoReadsAreNone) {
  on(streams.first, [&] { other.copy_(data); });
  on(streams.second, [&] { third.copy_(data); });
}

TEST_F(Races, WritesOfDifferentPartsAreNone) {
  on(streams.first, [&] { data.narrow(0, 0, 32).zero_(); });
  on(streams.second, [&] { data.narrow(0, 32, 32).zero_(); });
}

TEST_F(Races, OverlapsOfOneElementAreOne) {
  on(streams.first, [&] { data.narrow(0, 0, 33).zero_(); });
  on(streams.second, [&] { data.narrow(0, 32, 32).zero_(); });
  const std::vector<Race> found = races();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].end - found[0].begin, sizeof(float));
}

TEST_F(Races, TheHostsWaitPutsThingsInOrder) {
  on(streams.first, [&] { data.add_(1); });
  guard_impl().synchronizeStream(streams.first);
  on(streams.second, [&] { other.copy_(data); });
}

TEST_F(Races, ABlockingCopyPutsThingsInOrder) {
  on(streams.first, [&] { data.add_(1); });
  on(streams.first, [&] { EXPECT_EQ(data[0].item<float>(), 1.0F); });
  on(streams.second, [&] { other.copy_(data); });
}

TEST_F(Races, OrderGoesOnThroughAThirdStream) {
  const c10::Stream between = pool_stream();
  on(streams.first, [&] { data.add_(1); });
  order(streams.first, between);
  order(between, streams.second);
  on(streams.second, [&] { other.copy_(data); });
}

TEST_F(Races, FreeingWhatAnotherStreamReadsIsOne) {
  order(streams.first, streams.second);
  on(streams.second, [&] { other.copy_(data); });
  data.reset();
  const std::vector<Race> found = races();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].second_operation, "freeing memory");
}

TEST_F(Races, RecordStreamPutsTheFreeInOrder) {
  order(streams.first, streams.second);
  on(streams.second, [&] { other.copy_(data); });
  data.record_stream(streams.second);
  data.reset();
  drain();
  const torch::Tensor again = torch::zeros({64}, on_sim());
  guard_impl().synchronizeDevice(0);
}

TEST_F(Races, RecordStreamLeftOutIsOne) {
  const Mutation mutation(SyncKind::kRecordStream);
  order(streams.first, streams.second);
  on(streams.second, [&] { other.copy_(data); });
  data.record_stream(streams.second);
  data.reset();
  EXPECT_EQ(races().size(), 1U);
  EXPECT_EQ(mutation.left_out(), 1);
}

TEST_F(Races, UseOnAStreamThatWasNotRecordedIsOneInSpiteOfAnother) {
  on(streams.second, [&] { other.copy_(data); });
  on(pool_stream(), [&] { third.copy_(data); });
  data.record_stream(streams.second);
  data.reset();
  drain();
  const torch::Tensor again = torch::zeros({64}, on_sim());
  const std::vector<Race> found = races();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].second_operation, "freeing memory");
}

TEST_F(Races, UseOfFreshMemoryOnAnotherStreamIsOne) {
  const torch::Tensor fresh = torch::empty({64}, on_sim());
  on(streams.second, [&] { fresh.zero_(); });
  EXPECT_EQ(races().size(), 1U);
}

TEST_F(Races, AnEventWaitLeftOutIsOne) {
  const Mutation mutation(SyncKind::kStreamWait, 1);
  const std::int64_t before = race_counts().races;
  on(streams.first, [&] { data.add_(1); });
  order(streams.first, streams.second);
  on(streams.second, [&] { other.copy_(data); });
  EXPECT_EQ(race_counts().races, before);
  order(streams.second, streams.first);  // the one left out
  on(streams.first, [&] { other.zero_(); });
  EXPECT_EQ(mutation.left_out(), 1);
  EXPECT_EQ(mutation.seen(), 2);
  EXPECT_EQ(races().size(), 1U);
}

TEST_F(Races, ASecondRaceOfTheSameBytesIsOneToo) {
  on(streams.first, [&] { data.zero_(); });
  on(streams.second, [&] { data.zero_(); });
  on(streams.first, [&] { data.zero_(); });
  EXPECT_EQ(races().size(), 2U);
}

TEST_F(Races, TheDevicesAreOrderedByCopiesBetweenThem) {
  on(streams.first, [&] { data.add_(1); });
  const torch::Tensor there = data.to(sim(1), true);
  const torch::Tensor back = there.add(1).to(sim(0), true);
  EXPECT_TRUE(same_bits(back, torch::full({64}, 2.0F)));
}

class PinnedRaces : public Races {
 protected:
  torch::Tensor pinned = torch::zeros({1024}, torch::TensorOptions().pinned_memory(true));
  // As memory from cudaHostAlloc is, which LibTorch knows nothing of.
  static void without_guard() {
    DeviceOptions options;
    options.guards_pinned_frees = false;
    install(options);
  }
};

TEST_F(PinnedRaces, FreeingPinnedMemoryThatACopyReadsIsOne) {
  without_guard();
  const torch::Tensor target = torch::empty({1024}, on_sim());
  target.copy_(pinned, true);
  pinned.reset();
  const std::vector<Race> found = races();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].second_operation, "freeing pinned memory");
  EXPECT_EQ(found[0].second_stream, "the host");
}

TEST_F(PinnedRaces, FreeingPinnedMemoryThatACopyWritesIsOne) {
  without_guard();
  const torch::Tensor source = torch::ones({1024}, on_sim());
  pinned.copy_(source, true);
  pinned.reset();
  EXPECT_EQ(races().size(), 1U);
}

TEST_F(PinnedRaces, LibTorchsOwnCopiesAreGuarded) {
  const torch::Tensor target = torch::empty({1024}, on_sim());
  set_delays({.seed = 1, .longest_us = 20000});
  target.copy_(pinned, true);
  pinned.reset();
  EXPECT_TRUE(same_bits(target, torch::zeros({1024})));
  pinned = torch::zeros({8}, torch::TensorOptions().pinned_memory(true));
}

TEST_F(PinnedRaces, TheGuardLeftOutIsOne) {
  const Mutation mutation(SyncKind::kPinnedRecord);
  const torch::Tensor target = torch::empty({1024}, on_sim());
  target.copy_(pinned, true);
  pinned.reset();
  EXPECT_EQ(races().size(), 1U);
}

TEST_F(PinnedRaces, AFreeAfterTheHostsWaitIsNone) {
  without_guard();
  const torch::Tensor target = torch::empty({1024}, on_sim());
  target.copy_(pinned, true);
  guard_impl().synchronizeStream(streams.first);
  pinned.reset();
}

TEST_F(PinnedRaces, AHostsWaitLeftOutIsOne) {
  without_guard();
  const Mutation mutation(SyncKind::kStreamSynchronize);
  const torch::Tensor target = torch::empty({1024}, on_sim());
  target.copy_(pinned, true);
  guard_impl().synchronizeStream(streams.first);
  pinned.reset();
  EXPECT_EQ(races().size(), 1U);
}

TEST_F(PinnedRaces, ACopyBackOnAnotherStreamWithoutItsEventIsOne) {
  const torch::Tensor source = torch::ones({1024}, on_sim());
  const torch::Tensor target = torch::empty({1024}, on_sim());
  order(streams.first, streams.second);
  on(streams.first, [&] { pinned.copy_(source, true); });
  on(streams.second, [&] { target.copy_(pinned, true); });
  EXPECT_EQ(races().size(), 1U);
  guard_impl().synchronizeDevice(0);
}

TEST_F(PinnedRaces, ACopyBackAfterItsEventIsNone) {
  const torch::Tensor source = torch::ones({1024}, on_sim());
  const torch::Tensor target = torch::empty({1024}, on_sim());
  on(streams.first, [&] { pinned.copy_(source, true); });
  order(streams.first, streams.second);
  on(streams.second, [&] { target.copy_(pinned, true); });
  order(streams.second, streams.first);
  EXPECT_TRUE(same_bits(target, torch::ones({1024})));
}

}  // namespace
}  // namespace plimsoll::simgpu
