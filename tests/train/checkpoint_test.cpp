// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/train/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plimsoll/base/error.h"
#include "plimsoll/train/comparison.h"

namespace plimsoll::train {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class Checkpoint : public ::testing::Test {
 protected:
  Checkpoint()
      : folder_(fs::path(::testing::TempDir()) / ("plimsoll_run_" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
    options_.model = "resnet:stages=1-1,channels=4,image=8,dropout=0.2";
    options_.batch = 4;
  }
  ~Checkpoint() override { fs::remove_all(folder_); }

  static std::shared_ptr<const data::Dataset> samples() { return data::make_synthetic(50, 10, {}); }
  fs::path file() const { return folder_ / "run"; }
  std::string bytes() const {
    std::ostringstream text;
    text << std::ifstream(file(), std::ios::binary).rdbuf();
    return text.str();
  }
  // Behind the first line stands the header's length, then the header.
  static std::size_t header_end(const std::string& bytes) {
    const std::size_t begin = bytes.find('\n') + 1;
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data() + begin, sizeof length);
    return begin + sizeof length + length;
  }
  void rewrite(const std::string& text) const {
    std::ofstream(file(), std::ios::binary | std::ios::trunc) << text;
  }

  fs::path folder_;
  TrainOptions options_;
};

TEST_F(Checkpoint, AResumedRunGoesOnBitForBit) {
  for (const OptimizerKind kind :
       {OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kAdamW}) {
    options_.optimizer = kind;
    Trainer whole(options_, samples());
    for (int step = 0; step < 3; ++step) whole.step();
    save_run(whole, "synthetic", file());
    Trainer resumed(options_, samples());
    resume_run(resumed, "synthetic", file());
    EXPECT_EQ(resumed.steps_done(), 3);
    for (int step = 0; step < 14; ++step) EXPECT_TRUE(is_same_loss(whole.step(), resumed.step()));
    EXPECT_EQ(first_difference(whole, resumed), "");
  }
}

TEST_F(Checkpoint, ARunIsSavedFromInsideASession) {
  Trainer plain(options_, samples());
  Trainer inside(options_, samples());
  Session session({.budget_bytes = 400000});
  for (int step = 0; step < 3; ++step) {
    plain.step();
    inside.step(&session);
  }
  save_run(plain, "synthetic", file());
  const std::string expected = bytes();
  save_run(inside, "synthetic", file());
  EXPECT_EQ(bytes(), expected);
}

TEST_F(Checkpoint, EveryTruncationIsSeenAtItsEnd) {
  Trainer trainer(options_, samples());
  trainer.step();
  save_run(trainer, "synthetic", file());
  const std::string good = bytes();
  ASSERT_GT(good.size(), header_end(good));
  Trainer other(options_, samples());
  // The whole header byte by byte, the tensors in strides, the checksum byte by byte.
  for (std::size_t i = 0; i < good.size();
       i += i <= header_end(good) || i + 8 >= good.size()
                ? 1
                : std::min(good.size() / 200, good.size() - 8 - i)) {
    rewrite(good.substr(0, i));
    try {
      resume_run(other, "synthetic", file());
      ADD_FAILURE() << "accepted, cut at " << i;
    } catch (const InvalidFile& error) {
      EXPECT_EQ(error.file(), file().string());
      EXPECT_EQ(error.position(), "byte " + std::to_string(i));
      EXPECT_THAT(error.what(), HasSubstr("the file ends here, expected")) << i;
    }
  }
}

TEST_F(Checkpoint, EveryDamagedByteIsSeen) {
  Trainer trainer(options_, samples());
  trainer.step();
  save_run(trainer, "synthetic", file());
  const std::string good = bytes();
  Trainer other(options_, samples());
  const auto expect_seen = [&](std::size_t place, int mask) {
    std::string damaged = good;
    damaged[place] = static_cast<char>(damaged[place] ^ mask);
    rewrite(damaged);
    try {
      resume_run(other, "synthetic", file());
      ADD_FAILURE() << "accepted, damaged at " << place;
    } catch (const InvalidFile& error) {
      EXPECT_EQ(error.file(), file().string());
      EXPECT_THAT(error.position(), ::testing::MatchesRegex("byte [0-9]+")) << place;
    } catch (const InvalidArgument& error) {  // another run, as far as the header can be read
      EXPECT_THAT(error.what(), HasSubstr("--resume: '" + file().string() + "' is a run with "));
      EXPECT_LT(place, header_end(good)) << error.what();
    }
  };
  constexpr std::array<int, 3> kMasks = {0x01, 0x10, 0x80};
  for (std::size_t i = 0; i < header_end(good); ++i) expect_seen(i, kMasks[i % kMasks.size()]);
  for (std::size_t i = header_end(good); i < good.size(); i += good.size() / 200)
    expect_seen(i, 0x10);
  for (std::size_t i = good.size() - 4; i < good.size(); ++i) expect_seen(i, 0x01);
}

TEST_F(Checkpoint, AReadThatFailsIsNotTakenForACutFile) {
  fs::create_symlink("/proc/self/mem", file());
  Trainer trainer(options_, samples());
  try {
    resume_run(trainer, "synthetic", file());
    FAIL();
  } catch (const InvalidFile& error) {
    EXPECT_EQ(error.position(), "byte 0");
    EXPECT_THAT(error.what(), HasSubstr("cannot be read: Input/output error"));
  }
}

TEST_F(Checkpoint, ARunOfSomethingElseIsRefusedByName) {
  Trainer trainer(options_, samples());
  save_run(trainer, "synthetic", file());
  TrainOptions other = options_;
  other.model = "resnet:stages=1-2,channels=4,image=8,dropout=0.2";
  Trainer another(other, samples());
  try {
    resume_run(another, "synthetic", file());
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("stages=1-1"));
  }
  Trainer same(options_, samples());
  EXPECT_THROW(resume_run(same, "fashion-mnist", file()), InvalidArgument);
  EXPECT_THROW(resume_run(same, "synthetic", folder_ / "none"), InvalidFile);
}

TEST_F(Checkpoint, AFailedSaveLeavesTheOldFile) {
  Trainer trainer(options_, samples());
  EXPECT_THROW(save_run(trainer, "synthetic", folder_ / "missing" / "run"), InvalidArgument);
  save_run(trainer, "synthetic", file());
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

}  // namespace
}  // namespace plimsoll::train
