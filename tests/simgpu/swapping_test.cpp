// SPDX-License-Identifier: Apache-2.0
// A small pager: one block of device memory is cut into slots by the test itself, values are moved
// to pinned memory and back on copy streams. Correct, it is silent, and gives stock's bits; with
// any one of its waits left out, it is either reported or the wait is provably redundant.
//
//   compute   | make 0 | make 1 | ...          | use 0 | use 1 |
//   out            \ write 0 | write 1 | ...    made -> out, out -> reuse of the slot
//   in                          | read 0 | ...  slot free -> in, in -> use
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "device_fixture.h"

namespace plimsoll::simgpu {
namespace {

constexpr std::int64_t kElements = 4096;
constexpr std::int64_t kBytes = kElements * 4;

class Pager {
 public:
  explicit Pager(int slots)
      : block_(torch::zeros({slots * kElements}, on_sim())), compute_(default_stream()) {
    guard_impl().synchronizeDevice(0);
    for (int slot = 0; slot < slots; ++slot) free_.push_back({slot, std::nullopt});
  }

  // A slot to compute into, on the compute stream.
  int take() {
    Slot slot = std::move(free_.front());
    free_.pop_front();
    if (slot.vacated) slot.vacated->block(compute_);
    return slot.index;
  }

  torch::Tensor tensor(int slot) const {
    auto* begin = static_cast<char*>(block_.data_ptr()) + slot * kBytes;
    return torch::from_blob(begin, {kElements}, on_sim());
  }

  // Moves what the compute stream has made in the slot to the host.
  torch::Tensor evict(int slot) {
    const torch::Tensor host =
        torch::empty({kElements}, torch::TensorOptions().pinned_memory(true));
    c10::Event made(c10::kPrivateUse1);
    made.record(compute_);
    made.block(out_);
    {
      const c10::StreamGuard guard(out_);
      host.copy_(tensor(slot), true);
    }
    c10::Event vacated(c10::kPrivateUse1);
    vacated.record(out_);
    written_.emplace(c10::kPrivateUse1);
    written_->record(out_);
    free_.push_back({slot, std::move(vacated)});
    return host;
  }

  // Brings it back into a slot; compute may use it after ready.block.
  int fetch(const torch::Tensor& host, c10::Event& ready) {
    Slot slot = std::move(free_.front());
    free_.pop_front();
    if (slot.vacated) slot.vacated->block(in_);
    written_->block(in_);
    {
      const c10::StreamGuard guard(in_);
      tensor(slot.index).copy_(host, true);
    }
    ready.record(in_);
    return slot.index;
  }

  void wait_for(c10::Event& ready) { ready.block(compute_); }

  // What the compute stream has used up to now may be overwritten afterwards.
  void release(int slot) {
    c10::Event used(c10::kPrivateUse1);
    used.record(compute_);
    free_.push_back({slot, std::move(used)});
  }

 private:
  struct Slot {
    int index = 0;
    std::optional<c10::Event> vacated;
  };
  torch::Tensor block_;
  c10::Stream compute_;
  c10::Stream out_ = pool_stream();
  c10::Stream in_ = pool_stream();
  std::deque<Slot> free_;
  std::optional<c10::Event> written_;
};

constexpr int kValues = 6;

torch::Tensor value(int i) { return torch::full({kElements}, static_cast<float>(i + 1), on_sim()); }

// Makes values, sends them out, and adds them up in reverse order, one fetched ahead.
float run(int slots, const std::vector<torch::Tensor>& values) {
  Pager pager(slots);
  std::vector<torch::Tensor> hosts;
  for (const torch::Tensor& value : values) {
    const int slot = pager.take();
    pager.tensor(slot).copy_(value).mul_(2);
    hosts.push_back(pager.evict(slot));
  }
  const torch::Tensor sum = torch::zeros({kElements}, on_sim());
  std::deque<std::pair<int, c10::Event>> coming;
  const auto fetch = [&](int i) {
    c10::Event ready(c10::kPrivateUse1);
    const int slot = pager.fetch(hosts[static_cast<std::size_t>(i)], ready);
    coming.emplace_back(slot, std::move(ready));
  };
  fetch(kValues - 1);
  for (int i = kValues - 1; i >= 0; --i) {
    if (i > 0) fetch(i - 1);
    auto [slot, ready] = std::move(coming.front());
    coming.pop_front();
    pager.wait_for(ready);
    sum.add_(pager.tensor(slot));
    pager.release(slot);
  }
  const float total = sum.sum().item<float>();
  guard_impl().synchronizeDevice(0);
  return total;
}

class Swapping : public OnDevice {
 protected:
  static std::vector<torch::Tensor> values() {
    std::vector<torch::Tensor> values;
    for (int i = 0; i < kValues; ++i) values.push_back(value(i));
    guard_impl().synchronizeDevice(0);
    return values;
  }
  const float expected = 2.0F * (1 + 2 + 3 + 4 + 5 + 6) * kElements;
};

TEST_F(Swapping, IsSilentAndRightWithEveryDelay) {
  const auto in = values();
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    set_delays({.seed = seed, .longest_us = 300});
    EXPECT_EQ(run(2, in), expected) << "delay seed " << seed;
  }
}

TEST_F(Swapping, EveryKindOfWaitIsMissed) {
  const auto in = values();
  EXPECT_EQ(run(2, in), expected);
  take_races();
  const Mutation all(SyncKind::kStreamWait);
  run(2, in);
  EXPECT_GE(take_races().size(), 4U);
  EXPECT_GT(all.left_out(), 20);
}

TEST_F(Swapping, ASingleWaitIsMissedWithoutDelaysOrLuck) {
  const auto in = values();
  run(2, in);
  std::int64_t waits = 0;
  {
    const Mutation none([](const SyncPoint&) { return false; });
    run(2, in);
    waits = none.seen();
  }
  std::int64_t reported = 0;
  std::string silent;
  for (std::int64_t nth = 0; nth < waits; ++nth) {
    const Mutation one(SyncKind::kStreamWait, nth);
    run(2, in);
    if (one.left_out() == 0) break;
    if (take_races().empty()) {
      silent += " " + std::to_string(nth);
    } else {
      ++reported;
    }
    guard_impl().synchronizeDevice(0);
  }
  // The redundant ones, of 28. The copies in wait for the last copy out, once for all (11): that
  // covers the two slots which those copies vacated (10, 12) and the waits for it of later copies
  // in (13 and every third from there).
  EXPECT_EQ(silent, " 10 12 13 16 19 22 25");
  EXPECT_EQ(reported, 21);
}

TEST_F(Swapping, PrefetchHidesCopiesWhereTheLinkAllowsIt) {
  const auto in = values();
  run(3, in);
  // A kernel takes four times as long as a copy of what it eats.
  start_timeline({.memory_bytes_per_ns = 1,
                  .to_device_bytes_per_ns = 4,
                  .to_host_bytes_per_ns = 4,
                  .launch_ns = 0,
                  .copy_ns = 0,
                  .issue_ns = 0});
  run(3, in);
  EXPECT_GT(hidden_copy_share(), 0.9);
  // And a link that is far too slow cannot be hidden.
  start_timeline({.memory_bytes_per_ns = 16,
                  .to_device_bytes_per_ns = 1,
                  .to_host_bytes_per_ns = 1,
                  .launch_ns = 0,
                  .copy_ns = 0,
                  .issue_ns = 0});
  run(3, in);
  EXPECT_LT(hidden_copy_share(), 0.3);
  stop_timeline();
}

}  // namespace
}  // namespace plimsoll::simgpu
