// SPDX-License-Identifier: Apache-2.0
// Streams, events, memory, errors and generators of the test device.
#include <cmath>
#include <cstdlib>
#include <sstream>
#include <string>
#include <thread>

#include <c10/core/CachingDeviceAllocator.h>

#include "device_fixture.h"
#include "simgpu/stream_hold.h"

namespace plimsoll::simgpu {
namespace {

using Device = OnDevice;

constexpr Delays kSlow{.seed = 7, .longest_us = 100000};

// Runs everything once, so that its results' sizes are known and later calls do not wait.
void warm(const std::function<void()>& work) {
  work();
  guard_impl().synchronizeDevice(0);
}

TEST_F(Device, OperatorsReturnBeforeTheyRun) {
  torch::Tensor x = torch::ones({1000}, on_sim());
  const auto work = [&] {
    for (int i = 0; i < 20; ++i) x = x.mul(1.5).add(1);
  };
  warm(work);
  StreamHold hold(default_stream());
  const CallCounts before = call_counts();
  work();
  EXPECT_FALSE(guard_impl().queryStream(default_stream()));
  const CallCounts after = call_counts();
  EXPECT_EQ(after.first_seen, before.first_seen);
  EXPECT_EQ(after.asynchronous - before.asynchronous, 40);
  hold.release();
  guard_impl().synchronizeStream(default_stream());
  EXPECT_TRUE(guard_impl().queryStream(default_stream()));
}

TEST_F(Device, AnotherLearningRateIsTheSameCall) {
  torch::Tensor x = torch::ones({10}, on_sim());
  x.addcdiv_(x, x, 0.5);
  const CallCounts before = call_counts();
  x.addcdiv_(x, x, 0.25);
  EXPECT_EQ(call_counts().first_seen, before.first_seen);
  EXPECT_EQ(x[0].item<float>(), 1.75F);
}

TEST_F(Device, TheHostCannotTouchItsMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        install();
        const torch::Tensor x = torch::ones({4}, on_sim());
        guard_impl().synchronizeDevice(0);
        std::printf("%f\n", static_cast<double>(*x.data_ptr<float>()));
      },
      "");
}

TEST_F(Device, EventsAreOfTheMomentOfTheirRecord) {
  torch::Tensor x = torch::zeros({10}, on_sim());
  warm([&] { x.add_(1); });
  c10::Event event(c10::kPrivateUse1);
  EXPECT_TRUE(event.query());
  StreamHold hold(default_stream());
  for (int i = 0; i < 10; ++i) x.add_(1);
  event.record(default_stream());
  EXPECT_FALSE(event.query());
  hold.release();
  event.synchronize();
  EXPECT_TRUE(event.query());
  const StreamHold again(default_stream());
  for (int i = 0; i < 10; ++i) x.add_(1);
  EXPECT_TRUE(event.query()) << "what came after the record is of no interest";
}

TEST_F(Device, AnEventMayGoBeforeItIsReached) {
  torch::Tensor x = torch::zeros({10}, on_sim());
  const c10::Stream side = pool_stream();
  set_delays(kSlow);
  {
    c10::Event event(c10::kPrivateUse1);
    x.add_(1);
    event.record(default_stream());
    event.block(side);
  }
  const c10::StreamGuard guard(side);
  EXPECT_EQ(x.add(1)[0].item<float>(), 2.0F);
  guard_impl().synchronizeDevice(0);
}

TEST_F(Device, FreedMemoryIsUsedAgainAtOnceOnItsStreamOnly) {
  torch::Tensor x = torch::empty({1000}, on_sim());
  const void* first = x.storage().data_ptr().get();
  x.reset();
  {
    const c10::StreamGuard guard(pool_stream());
    const torch::Tensor y = torch::empty({1000}, on_sim());
    EXPECT_NE(y.storage().data_ptr().get(), first);
  }
  const torch::Tensor z = torch::empty({1000}, on_sim());
  EXPECT_EQ(z.storage().data_ptr().get(), first);
}

TEST_F(Device, FreshMemoryIsPoison) {
  const torch::Tensor x = torch::empty({100}, on_sim());
  EXPECT_TRUE(x.isnan().all().item<bool>());
  const torch::Tensor i = torch::empty({100}, on_sim().dtype(torch::kLong));
  EXPECT_TRUE(i.eq(-1).all().item<bool>());
}

TEST_F(Device, RecordedStreamsDeferReuse) {
  torch::Tensor x = torch::ones({1000}, on_sim());
  torch::Tensor sum = torch::zeros({1000}, on_sim());
  const c10::Stream side = pool_stream();
  warm([&] { sum.add_(x); });
  StreamHold hold(side);
  {
    const c10::StreamGuard guard(side);
    for (int i = 0; i < 20; ++i) sum.add_(x);
  }
  x.record_stream(side);
  const void* first = x.storage().data_ptr().get();
  const std::int64_t deferred = memory_counts(0).deferred_frees;
  x.reset();
  EXPECT_EQ(memory_counts(0).deferred_frees, deferred + 1);
  torch::Tensor y = torch::empty({1000}, on_sim());
  EXPECT_NE(y.storage().data_ptr().get(), first);
  hold.release();
  guard_impl().synchronizeDevice(0);
  const torch::Tensor z = torch::empty({1000}, on_sim());
  EXPECT_EQ(z.storage().data_ptr().get(), first);
  EXPECT_EQ(sum[0].item<float>(), 21.0F);
}

TEST_F(Device, CapacityIsHard) {
  empty_cache();
  DeviceOptions options;
  options.capacity_bytes = memory_counts(0).reserved_bytes + (1 << 20);
  install(options);
  torch::Tensor half = torch::empty({1 << 19}, on_sim().dtype(torch::kByte));
  EXPECT_THROW(torch::empty({1 << 20}, on_sim().dtype(torch::kByte)), c10::OutOfMemoryError);
  const torch::Tensor other_device = torch::empty({1 << 20}, on_sim(1).dtype(torch::kByte));
  half.reset();
  const torch::Tensor whole = torch::empty({1 << 20}, on_sim().dtype(torch::kByte));
  EXPECT_EQ(memory_counts(0).reserved_bytes, options.capacity_bytes);
  try {
    torch::empty({100}, on_sim());
    FAIL() << "there is no room";
  } catch (const c10::OutOfMemoryError& error) {
    const std::string text = error.what_without_backtrace();
    EXPECT_NE(text.find("requested 400 bytes"), std::string::npos) << text;
    EXPECT_NE(text.find("capacity " + std::to_string(options.capacity_bytes)), std::string::npos);
  }
}

TEST_F(Device, OutOfMemoryWaitsForDeferredFrees) {
  empty_cache();
  DeviceOptions options;
  options.capacity_bytes = memory_counts(0).reserved_bytes + 8192;
  install(options);
  const c10::Stream side = pool_stream();
  torch::Tensor x = torch::zeros({1024}, on_sim());
  guard_impl().synchronizeDevice(0);
  set_delays(kSlow);
  {
    const c10::StreamGuard guard(side);
    for (int i = 0; i < 5; ++i) x.add_(1);
  }
  x.record_stream(side);
  x.reset();
  const torch::Tensor y = torch::empty({2048}, on_sim());
  EXPECT_EQ(y.numel(), 2048);
}

TEST_F(Device, WorkspacesAreAllocatedOnTheDevice) {
  const auto convolve = [](const torch::Tensor& x, const torch::Tensor& w) {
    return torch::conv_transpose2d(x, w);
  };
  const torch::Tensor x = torch::ones({1, 8, 16, 16}, on_sim());
  const torch::Tensor w = torch::ones({8, 8, 3, 3}, on_sim());
  warm([&] { convolve(x, w); });
  const auto allocations_of_one = [&] {
    const std::int64_t before = memory_counts(0).allocations;
    convolve(x, w);
    return memory_counts(0).allocations - before;
  };
  EXPECT_EQ(allocations_of_one(), 2) << "the result and a workspace";
  DeviceOptions options;
  options.has_workspaces = false;
  install(options);
  EXPECT_EQ(allocations_of_one(), 1);
}

TEST_F(Device, DataErrorsStayAndSurfaceLater) {
  const torch::Tensor table = torch::ones({4, 3}, on_sim());
  const auto look_up = [&](std::int64_t row) {
    return table.index_select(0, torch::full({2}, row, on_sim().dtype(torch::kLong)));
  };
  warm([&] { look_up(1); });
  const torch::Tensor bad = look_up(9);  // returns: the device has not looked yet
  EXPECT_THROW(guard_impl().synchronizeDevice(0), c10::Error);
  EXPECT_THROW(table.add(1), c10::Error);
  EXPECT_NE(device_error(0).find("out of range"), std::string::npos) << device_error(0);
  EXPECT_EQ(device_error(1), "");
  EXPECT_EQ(torch::ones({2}, on_sim(1)).sum().item<float>(), 2.0F);
  clear_device_errors();
  EXPECT_EQ(table.sum().item<float>(), 12.0F);
}

TEST_F(Device, ErrorsOfShapeAreThrownAtOnceAndDoNotStay) {
  const torch::Tensor x = torch::ones({4, 3}, on_sim());
  EXPECT_THROW(torch::native_layer_norm(x, {5}, {}, {}, 1e-5), c10::Error);
  EXPECT_EQ(device_error(0), "");
  EXPECT_EQ(x.sum().item<float>(), 12.0F);
}

TEST_F(Device, InjectedErrorsStay) {
  inject_device_error(1, "the card fell off the bus");
  EXPECT_THROW(guard_impl().synchronizeDevice(1), c10::Error);
  EXPECT_THROW(torch::ones({2}, on_sim(1)), c10::Error);
  EXPECT_EQ(device_error(1), "the card fell off the bus");
}

TEST_F(Device, StoragesWithoutMemoryAreRefusedByName) {
  torch::Tensor x = torch::ones({8}, on_sim());
  x.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(c10::DataPtr(nullptr, sim()));
  try {
    x.add_(1);
    FAIL() << "ran on nothing";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("storage has no memory"), std::string::npos);
  }
}

TEST_F(Device, HostTensorsBesideDeviceTensorsAreRefused) {
  const torch::Tensor x = torch::ones({8}, on_sim());
  EXPECT_THROW(x.add(torch::ones({8})), c10::Error);
  EXPECT_THROW(torch::native_layer_norm(x, {8}, torch::ones({8}), {}, 1e-5), c10::Error);
  EXPECT_EQ(x.add(torch::tensor(2.0F))[0].item<float>(), 3.0F) << "but numbers are not";
}

TEST_F(Device, SparseTensorsAreRefusedClearly) {
  const torch::Tensor indices = torch::zeros({2, 1}, on_sim().dtype(torch::kLong));
  const torch::Tensor values = torch::ones({1}, on_sim());
  try {
    torch::_sparse_coo_tensor_with_dims_and_tensors(1, 1, {2}, indices, values,
                                                    on_sim().layout(torch::kSparse));
    FAIL() << "made a sparse tensor";
  } catch (const c10::NotImplementedError& error) {
    EXPECT_NE(std::string(error.what()).find("dense strided tensors only"), std::string::npos);
  }
}

TEST_F(Device, TwoDevicesAreApart) {
  const torch::Tensor a = torch::ones({4}, on_sim(0));
  const torch::Tensor b = torch::ones({4}, on_sim(1));
  EXPECT_THROW(a.add(b), c10::Error);
  EXPECT_EQ(a.add(b.to(sim(0))).sum().item<float>(), 8.0F);
  {
    const c10::DeviceGuard guard(sim(1));
    EXPECT_EQ(torch::ones({1}, torch::TensorOptions().device(c10::kPrivateUse1)).device(), sim(1));
  }
  EXPECT_EQ(guard_impl().getDevice(), sim(0));
}

TEST_F(Device, CopiesBetweenDevicesDoNotWait) {
  torch::Tensor x = torch::ones({1000}, on_sim(0));
  warm([&] { x.mul(2); });
  StreamHold hold(default_stream());
  torch::Tensor y = x;
  for (int i = 0; i < 10; ++i) y = y.mul(2);
  const torch::Tensor there = y.to(sim(1));
  EXPECT_FALSE(guard_impl().queryStream(default_stream(1)));
  hold.release();
  EXPECT_EQ(there[999].item<float>(), 1024.0F);
}

TEST_F(Device, PinnedMemoryIsKnownAndPoisonedWhenFreed) {
  torch::Tensor pinned = torch::ones({2048}, torch::TensorOptions().pinned_memory(true));
  EXPECT_TRUE(pinned.is_pinned());
  EXPECT_TRUE(pinned.narrow(0, 100, 10).is_pinned());
  EXPECT_FALSE(torch::ones({8}).is_pinned());
  const auto* bytes = static_cast<const unsigned char*>(pinned.data_ptr());
  const std::int64_t before = quarantined_bytes();
  pinned.reset();
  EXPECT_EQ(quarantined_bytes(), before + 8192);
  EXPECT_EQ(bytes[0], 0xFF) << "kept from reuse, and poison";
}

TEST_F(Device, CopiesToAndFromPinnedMemoryDoNotWait) {
  const torch::Tensor pinned =
      torch::arange(5000, torch::TensorOptions().dtype(torch::kFloat).pinned_memory(true));
  torch::Tensor x = torch::empty({5000}, on_sim());
  warm([&] { x.mul(2); });
  StreamHold hold(default_stream());
  for (int i = 0; i < 10; ++i) x.copy_(pinned, true);
  const torch::Tensor back = torch::empty({5000}, torch::TensorOptions().pinned_memory(true));
  back.copy_(x.mul(2), true);
  EXPECT_FALSE(guard_impl().queryStream(default_stream()));
  hold.release();
  guard_impl().synchronizeStream(default_stream());
  EXPECT_TRUE(same_bits(back, pinned.mul(2)));
}

TEST_F(Device, WhatACopyWritesToPinnedMemoryIsPoisonUntilItIsThere) {
  const torch::Tensor x = torch::ones({5000}, on_sim());
  const torch::Tensor back = torch::zeros({5000}, torch::TensorOptions().pinned_memory(true));
  warm([&] { x.mul(2); });
  StreamHold hold(default_stream());
  torch::Tensor y = x;
  for (int i = 0; i < 10; ++i) y = y.mul(2);
  back.copy_(y, true);
  EXPECT_TRUE(std::isnan(back[4999].item<float>())) << "read without having waited";
  hold.release();
  guard_impl().synchronizeStream(default_stream());
  EXPECT_EQ(back[4999].item<float>(), 1024.0F);
}

TEST_F(Device, PageableMemoryIsReadBeforeACopyReturns) {
  torch::Tensor host = torch::ones({100});
  torch::Tensor x = torch::empty({100}, on_sim());
  set_delays(kSlow);
  x.copy_(host, true);
  host.zero_();
  EXPECT_EQ(x.sum().item<float>(), 100.0F);
}

TEST_F(Device, SequentialGeneratorsDrawTheCpusNumbersInStreamOrder) {
  torch::manual_seed(3);
  const torch::Tensor on_cpu = torch::rand({100});
  const torch::Tensor more = torch::randn({100});
  torch::manual_seed(3);
  torch::Tensor x = torch::rand({100}, on_sim());
  torch::rand({7});  // the host's numbers are others
  EXPECT_TRUE(same_bits(x, on_cpu));
  EXPECT_TRUE(same_bits(torch::randn({100}, on_sim()), more));
}

TEST_F(Device, GeneratorStatesCanBeKeptAndSetBack) {
  for (const GeneratorKind kind : {GeneratorKind::kSequential, GeneratorKind::kCounter}) {
    DeviceOptions options;
    options.generator = kind;
    install(options);
    torch::manual_seed(5);
    at::Generator generator = at::globalContext().defaultGenerator(sim());
    torch::rand({10}, on_sim());
    const torch::Tensor state = generator.get_state();
    const torch::Tensor first = torch::rand({10}, on_sim());
    const torch::Tensor second = torch::rand({10}, on_sim());
    generator.set_state(state);
    EXPECT_TRUE(same_bits(torch::rand({10}, on_sim()), first));
    EXPECT_FALSE(same_bits(first, second));
  }
}

TEST_F(Device, CounterGeneratorsTakeTheirOffsetWhenIssuedAndNeverWait) {
  DeviceOptions options;
  options.generator = GeneratorKind::kCounter;
  install(options);
  torch::manual_seed(5);
  at::Generator generator = at::globalContext().defaultGenerator(sim());
  torch::Tensor x = torch::empty({10}, on_sim());
  warm([&] { x.uniform_(); });
  const std::uint64_t offset = generator.get_offset();
  StreamHold hold(default_stream());
  for (int i = 0; i < 10; ++i) x.uniform_();
  EXPECT_EQ(generator.get_offset(), offset + 40);
  EXPECT_EQ(generator.get_state().numel(), 16);
  EXPECT_FALSE(guard_impl().queryStream(default_stream())) << "get_state waited";
  hold.release();
  const torch::Tensor last = x.clone();
  generator.set_offset(offset + 36);
  EXPECT_TRUE(same_bits(x.uniform_(), last));
}

TEST_F(Device, BackwardRunsOnTheEnginesThreadWithTheForwardsStream) {
  const c10::Stream side = pool_stream();
  const c10::StreamGuard guard(side);
  torch::Tensor w = torch::ones({16, 16}, on_sim()).requires_grad_(true);
  w.matmul(w).tanh().sum().backward();
  torch::Tensor v = torch::ones({16, 16}).requires_grad_(true);
  v.matmul(v).tanh().sum().backward();
  EXPECT_TRUE(same_bits(w.grad(), v.grad()));
}

TEST_F(Device, ThreadsHaveTheirOwnStreams) {
  std::thread other([] {
    EXPECT_EQ(guard_impl().getStream(sim()), default_stream());
    const c10::StreamGuard guard(pool_stream());
    torch::Tensor x = torch::ones({100}, on_sim());
    for (int i = 0; i < 50; ++i) x = x.add(1);
    EXPECT_EQ(x[0].item<float>(), 51.0F);
  });
  torch::Tensor x = torch::ones({100}, on_sim());
  for (int i = 0; i < 50; ++i) x = x.add(2);
  EXPECT_EQ(x[0].item<float>(), 101.0F);
  other.join();
}

TEST_F(Device, StatisticsComeThroughLibTorch) {
  auto* allocator = c10::getDeviceAllocator(c10::kPrivateUse1);
  const auto before = allocator->getDeviceStats(0).allocated_bytes[0].current;
  const torch::Tensor x = torch::empty({1024}, on_sim());
  EXPECT_EQ(allocator->getDeviceStats(0).allocated_bytes[0].current, before + 4096);
}

struct KeptForever {
  torch::Tensor tensor;
  torch::Tensor pinned;
};

// Statics of a program are destroyed before or after the device's threads end.
[[noreturn]] void exit_with_work_pending(bool is_before) {
  static KeptForever* early = nullptr;
  if (is_before) {
    static KeptForever kept;
    early = &kept;
  }
  install();
  static KeptForever late;
  late.tensor = torch::ones({1000}, on_sim());
  late.pinned = torch::ones({1000}, torch::TensorOptions().pinned_memory(true));
  set_delays(kSlow);
  late.tensor = late.tensor.add(1).mul(2);
  late.tensor.copy_(late.pinned, true);
  if (early != nullptr) early->tensor = late.tensor.mul(3);
  std::exit(0);
}

TEST_F(Device, AProgramMayExitInAnyOrder) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_with_work_pending(false), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(exit_with_work_pending(true), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace plimsoll::simgpu
