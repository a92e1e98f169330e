// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/pool/file_tier.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <numeric>
#include <random>
#include <vector>

#if __has_include(<liburing.h>)
#include <liburing.h>
#endif

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plimsoll/base/bytes.h"
#include "plimsoll/base/error.h"

namespace plimsoll::pool {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<unsigned char> bytes_of(std::int64_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<unsigned char> bytes(static_cast<std::size_t>(count));
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
  return bytes;
}

// Both ways of reaching the disk run every test.
class FileTierTest : public testing::TestWithParam<bool> {
 protected:
  FileTierOptions options() {
    FileTierOptions options;
    options.folder = testing::TempDir();
    options.allow_io_uring = GetParam();
    options.chunk_bytes = kib(64);
    options.verify_checksums = true;
    options.faults = &faults_;
    return options;
  }
  device::FaultPlan faults_;
};

TEST_P(FileTierTest, ReadsBackWhatWasWritten) {
  FileTier tier(options());
  std::vector<FileSpan> spans;
  const std::vector<std::int64_t> sizes{1, 4095, 4096, kib(64), kib(64) + 1, mib(3) + 17};
  for (const std::int64_t size : sizes) {
    spans.push_back(tier.allocate(size));
    const auto data = bytes_of(size, static_cast<std::uint64_t>(size));
    tier.write(spans.back(), 0, data.data(), size);
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    std::vector<unsigned char> back(static_cast<std::size_t>(sizes[i]));
    tier.read(spans[i], 0, back.data(), sizes[i]);
    EXPECT_EQ(back, bytes_of(sizes[i], static_cast<std::uint64_t>(sizes[i])));
  }
  EXPECT_EQ(tier.used_bytes(), std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}));
  tier.check_invariants();
}

TEST_P(FileTierTest, ReusesAndTrimsRanges) {
  FileTier tier(options());
  const FileSpan a = tier.allocate(mib(1));
  const FileSpan b = tier.allocate(mib(1));
  tier.deallocate(a);
  EXPECT_EQ(tier.allocate(mib(1)).offset, a.offset);
  EXPECT_EQ(tier.file_bytes(), mib(2));
  tier.deallocate(b);
  tier.trim();
  EXPECT_EQ(tier.file_bytes(), mib(1));
  EXPECT_EQ(tier.used_bytes(), mib(1));
  tier.check_invariants();
}

TEST_P(FileTierTest, LeavesNoNameBehind) {
  const auto folder = std::filesystem::path(testing::TempDir()) /
                      ("plimsoll_file_tier_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  FileTierOptions in_folder = options();
  in_folder.folder = folder;
  FileTier tier(in_folder);
  tier.allocate(mib(1));
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::filesystem::remove(folder);
}

TEST_P(FileTierTest, GivesATypedErrorWhereTheLimitOrTheDiskIsFull) {
  FileTierOptions limited = options();
  limited.limit_bytes = mib(1);
  FileTier tier(limited);
  const FileSpan span = tier.allocate(mib(1));
  EXPECT_THROW(tier.allocate(1), HostOutOfMemory);
  const auto data = bytes_of(mib(1), 1);
  faults_.fail(device::FaultKind::kFileWrite, 1);
  EXPECT_THAT([&] { tier.write(span, 0, data.data(), mib(1)); },
              ThrowsMessage<HostOutOfMemory>(HasSubstr("disk")));
  tier.write(span, 0, data.data(), mib(1));
  std::vector<unsigned char> back(data.size());
  faults_.fail(device::FaultKind::kFileRead, 1);
  EXPECT_THROW(tier.read(span, 0, back.data(), mib(1)), DeviceError);
  tier.read(span, 0, back.data(), mib(1));
  EXPECT_EQ(back, data);
  tier.check_invariants();
}

TEST_P(FileTierTest, GivesATypedErrorWhereTheFileCannotGrowAndThenGoesOn) {
  FileTier tier(options());
  faults_.fail(device::FaultKind::kFileGrow, 1);
  EXPECT_THAT([&] { tier.allocate(mib(1)); },
              ThrowsMessage<HostOutOfMemory>(HasSubstr("disk of the spill folder is full")));
  EXPECT_EQ(tier.used_bytes(), 0);
  tier.check_invariants();
  EXPECT_TRUE(tier.allocate(mib(1)).valid());
}

bool kernel_offers_rings(int depth) {
#if __has_include(<liburing.h>)
  io_uring_params parameters{};
  const int ring = static_cast<int>(syscall(__NR_io_uring_setup, depth, &parameters));
  if (ring >= 0) close(ring);
  return ring >= 0;
#else
  return false;  // nor does the library use what it could not be built with
#endif
}

TEST_P(FileTierTest, UsesARingWhereThereIsOneAndItMay) {
  const int depth = options().queue_depth;
  EXPECT_EQ(FileTier(options()).uses_io_uring(), GetParam() && kernel_offers_rings(depth));
}

// A file may not grow past a limit of the system: the kernel itself refuses.
TEST_P(FileTierTest, LosesNothingWhereTheSystemRefusesMoreBytes) {
  FileTier tier(options());
  const FileSpan kept = tier.allocate(kib(512));
  const auto data = bytes_of(kib(512), 3);
  tier.write(kept, 0, data.data(), kib(512));
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = old;
  small.rlim_cur = static_cast<rlim_t>(mib(1));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(tier.allocate(mib(1)), HostOutOfMemory);
  EXPECT_EQ(tier.used_bytes(), kib(512));
  EXPECT_TRUE(tier.allocate(kib(512)).valid());
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_TRUE(tier.allocate(mib(1)).valid());
  std::vector<unsigned char> back(data.size());
  tier.read(kept, 0, back.data(), kib(512));
  EXPECT_EQ(back, data);
  tier.check_invariants();
}

TEST_P(FileTierTest, SeesBytesThatWereNeverWritten) {
  FileTier tier(options());
  const FileSpan span = tier.allocate(kib(100));
  std::vector<unsigned char> back(kib(100));
  EXPECT_THAT([&] { tier.read(span, 0, back.data(), kib(100)); },
              ThrowsMessage<DeviceError>(HasSubstr("not what was written")));
}

TEST_P(FileTierTest, RefusesWhatMakesNoSense) {
  FileTierOptions nowhere = options();
  nowhere.folder = "/nonexistent/folder";
  EXPECT_THAT([&] { FileTier tier(nowhere); },
              ThrowsMessage<InvalidArgument>(HasSubstr("/nonexistent/folder")));
  faults_.fail(device::FaultKind::kFileOpen, 1);
  EXPECT_THROW(FileTier{options()}, InvalidArgument);
  FileTierOptions odd = options();
  odd.chunk_bytes = 5000;
  EXPECT_THROW(FileTier{odd}, InvalidArgument);
  FileTier tier(options());
  const FileSpan span = tier.allocate(kib(100));
  char byte = 0;
  EXPECT_THROW(tier.write(span, 1, &byte, 1), InvalidArgument);
  EXPECT_THROW(tier.write(span, kib(64), &byte, kib(64)), InvalidArgument);
  EXPECT_THROW(tier.allocate(0), InvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Ways, FileTierTest, testing::Values(true, false), [](const auto& info) {
  return info.param ? "IoUringWherePresent" : "PositionedCalls";
});

}  // namespace
}  // namespace plimsoll::pool
