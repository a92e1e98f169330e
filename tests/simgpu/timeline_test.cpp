// SPDX-License-Identifier: Apache-2.0
// Virtual time gives the same numbers on every machine; small cases are worked out by hand.
#include <sstream>

#include <nlohmann/json.hpp>

#include "device_fixture.h"

namespace plimsoll::simgpu {
namespace {

// Every operation takes its bytes in ns, copies and kernels alike, and the host no time.
constexpr Speeds kUnit{.memory_bytes_per_ns = 1,
                       .flops_per_ns = 1e9,
                       .to_device_bytes_per_ns = 1,
                       .to_host_bytes_per_ns = 1,
                       .launch_ns = 0,
                       .copy_ns = 0,
                       .issue_ns = 0};

class Timeline : public OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    pinned = torch::zeros({1000}, torch::TensorOptions().dtype(torch::kByte).pinned_memory(true));
    a = torch::zeros({1000}, on_sim().dtype(torch::kByte));
    b = torch::zeros({1000}, on_sim().dtype(torch::kByte));
    guard_impl().synchronizeDevice(0);
  }
  void TearDown() override {
    stop_timeline();
    OnDevice::TearDown();
  }
  torch::Tensor pinned;
  torch::Tensor a;
  torch::Tensor b;
};

TEST_F(Timeline, OperationsOfAStreamFollowOneAnother) {
  start_timeline(kUnit);
  a.zero_();
  b.copy_(a);
  guard_impl().synchronizeDevice(0);
  const auto operations = timed_operations();
  ASSERT_EQ(operations.size(), 2U);
  EXPECT_EQ(operations[0].end_ns, 1000);
  EXPECT_EQ(operations[1].begin_ns, 1000);
  EXPECT_EQ(operations[1].end_ns, 3000) << "1000 bytes read and 1000 written";
  EXPECT_EQ(timeline_end_ns(), 3000);
}

TEST_F(Timeline, ACopyOnAnotherStreamIsHiddenByWhatNeedsItNot) {
  const c10::Stream side = pool_stream();
  start_timeline(kUnit);
  {
    const c10::StreamGuard guard(side);
    b.copy_(pinned, true);  // 0 to 1000
  }
  a.zero_();  // 0 to 1000
  c10::Event ready(c10::kPrivateUse1);
  ready.record(side);
  ready.block(default_stream());
  b.zero_();  // 1000 to 2000
  EXPECT_EQ(timeline_end_ns(), 2000);
  EXPECT_EQ(hidden_copy_share(), 1.0);
  guard_impl().synchronizeDevice(0);
}

TEST_F(Timeline, ACopyThatIsWaitedForIsNotHidden) {
  const c10::Stream side = pool_stream();
  start_timeline(kUnit);
  {
    const c10::StreamGuard guard(side);
    b.copy_(pinned, true);  // 0 to 1000
  }
  a.narrow(0, 0, 250).zero_();  // 0 to 250
  c10::Event ready(c10::kPrivateUse1);
  ready.record(side);
  ready.block(default_stream());
  b.zero_();  // 1000 to 2000: stood still for 750
  EXPECT_EQ(timeline_end_ns(), 2000);
  EXPECT_DOUBLE_EQ(hidden_copy_share(), 0.25);
  guard_impl().synchronizeDevice(0);
}

TEST_F(Timeline, CopiesOfOneDirectionShareTheLink) {
  const c10::Stream first = pool_stream();
  const c10::Stream second = pool_stream();
  const torch::Tensor back = torch::empty_like(pinned, torch::TensorOptions().pinned_memory(true));
  start_timeline(kUnit);
  {
    const c10::StreamGuard guard(first);
    a.copy_(pinned, true);  // 0 to 1000
  }
  {
    const c10::StreamGuard guard(second);
    b.copy_(pinned, true);  // 1000 to 2000
    back.copy_(b, true);    // 2000 to 3000, the other direction
  }
  const auto operations = timed_operations();
  ASSERT_EQ(operations.size(), 3U);
  EXPECT_EQ(operations[1].begin_ns, 1000);
  EXPECT_EQ(operations[2].begin_ns, 2000);
  guard_impl().synchronizeDevice(0);
}

TEST_F(Timeline, AHostThatWaitsIssuesLater) {
  start_timeline(kUnit);
  a.zero_();
  guard_impl().synchronizeStream(default_stream());
  const c10::StreamGuard guard(pool_stream());
  b.zero_();
  EXPECT_EQ(timed_operations().back().begin_ns, 1000);
  guard_impl().synchronizeDevice(0);
}

TEST_F(Timeline, EventsAnswerByVirtualTime) {
  Speeds speeds = kUnit;
  speeds.issue_ns = 10;
  start_timeline(speeds);
  a.zero_();
  c10::Event event(c10::kPrivateUse1);
  event.record(default_stream());
  drain();  // really done, and yet
  int questions = 1;
  while (!event.query()) ++questions;
  EXPECT_EQ(questions, 100) << "each question takes 10 ns of the host's time";
}

TEST_F(Timeline, ProductsTakeTheTimeOfTheirArithmetic) {
  Speeds speeds = kUnit;
  speeds.memory_bytes_per_ns = 1e9;
  speeds.flops_per_ns = 2;
  const torch::Tensor x = torch::ones({10, 20}, on_sim());
  const torch::Tensor y = torch::ones({20, 30}, on_sim());
  guard_impl().synchronizeDevice(0);
  start_timeline(speeds);
  torch::mm(x, y);
  EXPECT_EQ(timed_operations().back().end_ns, 10 * 20 * 30);
  guard_impl().synchronizeDevice(0);
}

TEST_F(Timeline, AFirstCallTakesTheTimeOfALaterOne) {
  const torch::Tensor x = torch::ones({17, 20}, on_sim());
  const torch::Tensor y = torch::ones({20, 31}, on_sim());
  start_timeline(kUnit);
  torch::mm(x, y);
  torch::native_layer_norm(x, {20}, {}, {}, 1e-5);
  const std::int64_t first_ns = timeline_end_ns();
  const std::size_t first_count = timed_operations().size();
  torch::mm(x, y);
  torch::native_layer_norm(x, {20}, {}, {}, 1e-5);
  EXPECT_EQ(timeline_end_ns(), 2 * first_ns);
  EXPECT_EQ(timed_operations().size(), 2 * first_count);
  guard_impl().synchronizeDevice(0);
}

TEST_F(Timeline, TheTraceIsWhatChromeReads) {
  start_timeline(kUnit);
  a.zero_();
  b.copy_(pinned, true);
  std::ostringstream out;
  write_chrome_trace(out);
  const auto trace = nlohmann::json::parse(out.str());
  ASSERT_EQ(trace["traceEvents"].size(), 2U);
  EXPECT_EQ(trace["traceEvents"][0]["ph"], "X");
  EXPECT_EQ(trace["traceEvents"][1]["name"], "copy to the device");
  EXPECT_EQ(trace["traceEvents"][1]["dur"], 1.0);
  guard_impl().synchronizeDevice(0);
}

}  // namespace
}  // namespace plimsoll::simgpu
