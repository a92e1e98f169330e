// SPDX-License-Identifier: Apache-2.0
// Mutated snapshots: whatever the bytes, an error with the byte offset or a snapshot, and memory
// bounded by the file's size. PLIMSOLL_FUZZ_FILES sets how many files at least,
// PLIMSOLL_FUZZ_SECONDS for how long at least, PLIMSOLL_FUZZ_FIRST the first seed.
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <new>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plimsoll/base/error.h"
#include "plimsoll/explain/explanation.h"
#include "plimsoll/explain/pickle.h"
#include "plimsoll/explain/snapshot.h"

namespace {

// What this program has allocated, and the most it had since the last reset.
std::atomic<std::int64_t> g_live{0};
std::atomic<std::int64_t> g_peak{0};

void* counted(std::size_t bytes) {
  void* block = std::malloc(bytes);
  if (block == nullptr) throw std::bad_alloc();
  const std::int64_t live = g_live += static_cast<std::int64_t>(malloc_usable_size(block));
  if (live > g_peak) g_peak = live;
  return block;
}
void uncounted(void* block) noexcept {
  if (block != nullptr) g_live -= static_cast<std::int64_t>(malloc_usable_size(block));
  std::free(block);
}

}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes); }
void* operator new[](std::size_t bytes) { return counted(bytes); }
// Sanitizers do not build this one on the first.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return counted(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* block) noexcept { uncounted(block); }
void operator delete[](void* block) noexcept { uncounted(block); }
void operator delete(void* block, std::size_t) noexcept { uncounted(block); }
void operator delete[](void* block, std::size_t) noexcept { uncounted(block); }

namespace plimsoll::explain {
namespace {

std::vector<std::string> seed_files() {
  std::vector<std::string> files;
  for (const char* protocol : {"2", "3", "4", "5"}) {
    std::ifstream file(
        std::string(PLIMSOLL_TEST_DATA "/explain/snapshot_protocol_") + protocol + ".pickle",
        std::ios::binary);
    files.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return files;
}

std::string mutate(std::string bytes, const std::string& other, std::mt19937_64& random) {
  static const std::string kOpcodes =
      "().0125aBbCcdeGhIijJKlMNopPQqRrsStTuUVX]}"
      "\x80\x81\x82\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x90\x91\x92\x93\x94\x95\x96";
  const int mutations = 1 + static_cast<int>(random() % 8);
  for (int i = 0; i < mutations && !bytes.empty(); ++i) {
    const std::size_t at = random() % bytes.size();
    const std::size_t length = 1 + random() % 64;
    switch (random() % 7) {
      case 0:
        bytes[at] = static_cast<char>(random());
        break;
      case 1:
        bytes[at] ^= static_cast<char>(1 << random() % 8);
        break;
      case 2:
        bytes[at] = kOpcodes[random() % kOpcodes.size()];
        break;
      case 3:
        bytes.erase(at, length);
        break;
      case 4:
        bytes.insert(at, bytes.substr(random() % bytes.size(), length));
        break;
      case 5:
        bytes.insert(at, other.substr(random() % other.size(), length));
        break;
      default:
        if (random() % 4 == 0) {
          bytes.resize(at);
        } else {
          bytes.insert(at, length * (1 + random() % 16), kOpcodes[random() % kOpcodes.size()]);
        }
    }
  }
  return bytes;
}

TEST(SnapshotFuzz, MutatedFilesGiveAnErrorWithTheByteOrASnapshotInBoundedMemory) {
  const auto setting = [](const char* name, std::int64_t absent) -> std::int64_t {
    const char* value = std::getenv(name);
    return value != nullptr ? std::atoll(value) : absent;
  };
  const std::int64_t files = setting("PLIMSOLL_FUZZ_FILES", 100'000);
  const std::int64_t seconds = setting("PLIMSOLL_FUZZ_SECONDS", 0);
  const std::int64_t first = setting("PLIMSOLL_FUZZ_FIRST", 0);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  const std::vector<std::string> seeds = seed_files();
  for (const std::string& seed : seeds) ASSERT_FALSE(seed.empty());
  std::int64_t accepted = 0;
  double worst = 0;
  std::int64_t i = first;
  for (; i < first + files || std::chrono::steady_clock::now() < end; ++i) {
    std::mt19937_64 random(static_cast<std::uint64_t>(i));
    const std::string bytes =
        mutate(seeds[random() % seeds.size()], seeds[random() % seeds.size()], random);
    const std::int64_t before = g_live;
    g_peak = before;
    try {
      const Snapshot snapshot = read_snapshot(bytes, "fuzz");
      worst = std::max(
          worst, static_cast<double>(g_peak - before) / static_cast<double>(bytes.size() + 64));
      ++accepted;
      if (accepted % 16 == 0) explain(snapshot);
    } catch (const InvalidFile& error) {
      worst = std::max(
          worst, static_cast<double>(g_peak - before) / static_cast<double>(bytes.size() + 64));
      ASSERT_THAT(error.position(), ::testing::StartsWith("byte ")) << "seed " << i;
    } catch (const InvalidArgument& error) {
      // Sums of absurd sizes; the message names them.
      ASSERT_NE(std::string(error.what()), "") << "seed " << i;
    }
    ASSERT_LE(worst, static_cast<double>(PickleDocument::kBytesPerByte)) << "seed " << i;
  }
  EXPECT_GT(accepted, (i - first) / 1000);
  std::printf("%lld files, %lld accepted, at most %.0f bytes of memory for a byte of file\n",
              static_cast<long long>(i - first), static_cast<long long>(accepted), worst);
}

// Files made to cost as much as they can, not merely damaged.
TEST(SnapshotFuzz, FilesMadeToExplodeStayBounded) {
  using namespace std::string_literals;
  const auto cost = [](const std::string& bytes) {
    const std::int64_t before = g_live;
    g_peak = before;
    try {
      read_snapshot(bytes, "bomb");
    } catch (const InvalidFile&) {
    }
    return static_cast<double>(g_peak - before) / static_cast<double>(bytes.size());
  };
  const auto limit = static_cast<double>(PickleDocument::kBytesPerByte);
  constexpr std::size_t kMany = 200'000;
  EXPECT_LE(cost("\x80\x04"s + std::string(kMany, '}') + "."), limit);
  EXPECT_LE(cost("\x80\x04"s + std::string(kMany, ')') + "."), limit);
  EXPECT_LE(cost("\x80\x04"s + std::string(kMany, '(') + "."), limit);
  std::string nested = "\x80\x04N"s;
  for (std::size_t i = 0; i < kMany; ++i) nested += "\x85";
  EXPECT_LE(cost(nested + "."), limit);
  // Frames shared by many blocks' own lists of frames.
  std::string shared =
      "\x80\x04}(\x8c\x08segments](}(\x8c\x06"s
      "blocks](}\x94("s
      "\x8c\x08"
      "filename\x8c\x40"s +
      std::string(64, 'x') + "u0"s;
  for (std::size_t i = 0; i < kMany / 100; ++i) {
    shared += "}(\x8c\x04sizeK\x01\x8c\x06"s + "frames]("s;
    for (int f = 0; f < 50; ++f) shared += "h\x00"s;
    shared += "eu";
  }
  shared += "e\x8c\x07"s + "addressK\x01\x8c\x0atotal_sizeK\x01ueu."s;
  EXPECT_LE(cost(shared), limit);
}

}  // namespace
}  // namespace plimsoll::explain
