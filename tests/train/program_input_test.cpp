// SPDX-License-Identifier: Apache-2.0
// What `plimsoll train` says to input that cannot work, and what it leaves behind.
#include <sys/stat.h>

#include "train_program.h"

namespace plimsoll::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

TEST_F(TrainProgram, BadInputIsOneClearErrorBeforeAnyWork) {
  expect_refusal("train resnet5", "the nearest is 'resnet50'");
  expect_refusal("train resnet50:imag=3", "the nearest is 'image'");
  expect_refusal(small_ + "--level planned", "there are auto, allocator and eager");
  expect_refusal(small_ + "--level eagre", "the nearest is 'eager'");
  expect_refusal(small_ + "--policy superneurons", "comes later");
  expect_refusal(small_ + "--optimizer sdg", "the nearest is 'sgd'");
  expect_refusal(small_ + "--autocast fp16", "must be bf16");
  expect_refusal(small_ + "--data /no/such/folder", "/no/such/folder");
  expect_refusal(small_ + "--resume /no/such/file", "/no/such/file");
  expect_refusal("train resnet:stages=0", "stages = '0' must be whole numbers");
  expect_refusal("train resnet50:image=1", "image = '1' must be a whole number from 8");
  expect_refusal("train gpt:dim=7", "dim = 7 must be a multiple of heads = 8");
  for (const std::string flag :
       {"--trace x", "--spill /tmp", "--host-limit 1MiB", "--policy lru"}) {
    const std::string text = flag.substr(0, flag.find(' ')) + ": '" +
                             flag.substr(flag.find(' ') + 1) + "' is for level eager";
    expect_refusal(small_ + flag, text);
    expect_refusal(small_ + "--budget 1GiB --level allocator " + flag, text);
  }
  expect_refusal("train lstm:layers=1,dim=8 --data fashion-mnist", "takes tokens; use synthetic");
  expect_refusal("train gpt:layers=1,dim=8,heads=2,seq=4,classes=16 --data fashion-mnist",
                 "--data");
}

TEST_F(TrainProgram, ABudgetThatIsNoSizeIsRefusedWithFlagValueAndExample) {
  for (const std::string value : {"0", "-1", "9e99GiB", "99999999999GiB", "5Gigs"})
    expect_refusal(small_ + "--budget=" + value, "--budget: '" + value + "' ",
                   "; write a positive size such as 64MiB");
  expect_refusal(small_ + "--budget -1", "--budget: '-1' ");
}

TEST_F(TrainProgram, ABudgetThatNoMachineHasIsOutOfMemory) {
  const Outcome outcome = run(small_ + "--budget 4000000000GiB", "timeout 120");
  EXPECT_EQ(outcome.code, 4);
  EXPECT_THAT(outcome.err, HasSubstr("cannot map the arena: Cannot allocate memory"));
  EXPECT_TRUE(outcome.is_one_line()) << outcome.err;
  // A limit alone maps nothing.
  const std::string most = std::to_string(std::numeric_limits<std::int64_t>::max());
  const Outcome limit =
      run(small_ + "--level allocator --against-stock --steps 2 --json - --budget " + most);
  ASSERT_EQ(limit.code, 0) << limit.err;
  EXPECT_EQ(limit.json()["budget_bytes"], std::numeric_limits<std::int64_t>::max());
}

// A sanitizer's shadow takes more address space than the limit leaves.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_F(TrainProgram, AModelOrABatchThatNoMachineHoldsIsOutOfMemory) {
  for (const std::string words :
       {"train mlp:dim=16384,image=4096 --batch 4", "train mlp:image=4096 --batch 1048576"}) {
    const Outcome outcome =
        run(words + " --steps 1", "bash -c 'ulimit -v 6000000; exec \"$@\"' bash");
    EXPECT_EQ(outcome.code, 4) << words;
    EXPECT_THAT(outcome.err, HasSubstr("this machine's memory is exhausted"));
    EXPECT_TRUE(outcome.is_one_line()) << outcome.err;
  }
}
#endif

TEST_F(TrainProgram, ABudgetThatCannotWorkNamesTheLeastThatCan) {
  std::int64_t minimum = 0;
  // Below one block of the arena, more, and a share that comes to less than a byte.
  for (const std::string budget : {"1", "63", "10KiB", "0.00001%"}) {
    const Outcome outcome = run(small_ + "--steps 2 --json - --budget " + budget);
    ASSERT_EQ(outcome.code, 3) << budget << "\n" << outcome.err;
    const Json json = outcome.json();
    const std::string pinned_by = json["pinned_by"];
    EXPECT_THAT(pinned_by,
                MatchesRegex("aten::[a-z_]+ \\(operator [0-9]+\\) \\([1-9][0-9]+ bytes\\)"));
    if (minimum == 0) minimum = json["minimum_budget_bytes"];
    EXPECT_EQ(json["minimum_budget_bytes"], minimum) << budget;
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr(pinned_by), HasSubstr(std::to_string(minimum) + " bytes needed")));
    EXPECT_TRUE(outcome.is_one_line()) << outcome.err;
  }
  EXPECT_EQ(run(small_ + "--steps 3 --budget " + std::to_string(minimum)).code, 0);
  const Outcome below = run(small_ + "--steps 3 --json " + path("below.json") + " --budget " +
                            std::to_string(minimum * 9 / 10));
  EXPECT_EQ(below.code, 3) << below.err;
  EXPECT_EQ(Json::parse(read("below.json"))["minimum_budget_bytes"], minimum);
}

TEST_F(TrainProgram, AShareBelowOneByteIsALimitAtTheAllocatorLevelToo) {
  const Outcome outcome = run(small_ + "--level allocator --steps 2 --json - --budget 0.00001%");
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_EQ(outcome.json()["budget_bytes"], 1);
  EXPECT_THAT(outcome.json()["pinned_by"].get<std::string>(), ::testing::StartsWith("aten::"));
  // A batch that is loaded before the first operator may be the peak.
  const Outcome loading =
      run("train mlp:layers=1,dim=8,image=8 --threads 2 --steps 2 --level allocator --budget 1KiB");
  EXPECT_EQ(loading.code, 3) << loading.err;
  EXPECT_THAT(loading.err, ::testing::Not(HasSubstr(":  needs"))) << "nothing is named";
}

TEST_F(TrainProgram, ANumberThatIsNoneIsRefusedWithFlagValueAndRange) {
  const std::string most = " must be a whole number from 1 to ";
  for (const std::string value : {"0", "-3", "1.5", "99999999999999999999", "4x"}) {
    const std::string quoted = "'" + value + "'";
    expect_refusal(small_.substr(0, small_.find("--batch")) + "--batch " + value,
                   "--batch: " + quoted + most + "1048576");
  }
  const std::string word = "train mlp ";
  expect_refusal(word + "--steps 0", "--steps: '0'" + most + "1000000000");
  expect_refusal(word + "--epochs 0", "--epochs: '0'" + most + "1000000");
  expect_refusal(word + "--threads 0", "--threads: '0'" + most + "1024");
  expect_refusal(word + "--threads 1025", "--threads: '1025'" + most + "1024");
  for (const std::string value : {"0", "nan", "1e30", "x"})
    expect_refusal(word + "--lr " + value, "--lr: '" + value + "' must be a number above 0");
  for (const std::string value : {"-1", "18446744073709551616"})
    expect_refusal(word + "--seed " + value, "--seed: '" + value + "' must be a whole number");
}

TEST_F(TrainProgram, AnEmptyValueIsNotTakenForNone) {
  for (const std::string flag :
       {"--save", "--resume", "--report", "--trace", "--spill", "--json", "--steps", "--lr"})
    expect_refusal(small_ + flag + " ''", flag + ": '' is empty");
}

TEST_F(TrainProgram, WhatCannotBeWrittenIsRefusedBeforeTrainingAndLeavesNothing) {
  write("file", "old");
  fs::create_directory(folder_ / "folder");
  const std::set<std::string> before = names();
  const std::string forever = "train mlp:layers=1,dim=8,image=8 --budget 1MiB --steps 1000000000 ";
  for (const std::string flag : {"--save", "--report", "--trace", "--json"}) {
    for (const std::string& target :
         {path("folder"), path("file/x"), path("none/x"), std::string("/proc/plimsoll-x")}) {
      const std::string text = flag + ": '" + target + "' cannot be written: ";
      expect_refusal(forever + flag + " " + target, text);
    }
  }
  for (const std::string& target : {path("file"), path("none"), std::string("/proc")}) {
    expect_refusal(forever + "--spill " + target, "--spill: ", "'" + target + "'");
  }
  EXPECT_EQ(names(), before);
  EXPECT_EQ(read("file"), "old");
}

TEST_F(TrainProgram, TwoResultsForOneFileAreRefused) {
  fs::create_directory_symlink(folder_, folder_ / "link");
  for (const std::string second : {"--report", "--json", "--trace"}) {
    expect_refusal(
        small_ + "--budget 1GiB --save " + path("x") + " " + second + " " + path("link/x"),
        "' is what --", "; name another file");
  }
  fs::create_symlink(path("x"), folder_ / "dangling");
  const std::string from_folder = "env -C " + folder_.string();
  const std::vector<std::string> pairs = {"--save x --report ./x", "--save x --report " + path("x"),
                                          "--save - --report ./-", "--save dangling --report x",
                                          "--save x --json link/./x"};
  for (const std::string& pair : pairs) {
    const Outcome outcome = run(small_ + pair, from_folder);
    EXPECT_EQ(outcome.code, 2) << pair;
    EXPECT_THAT(outcome.err, HasSubstr("; name another file")) << pair;
  }
  EXPECT_FALSE(fs::exists(folder_ / "x"));
  EXPECT_FALSE(fs::exists(folder_ / "-"));
  const Outcome outcome = run(small_ + "--steps 1 --report /dev/null --json /dev/null");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

TEST_F(TrainProgram, APipeIsRefusedWhereARunIsReadTwice) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  expect_refusal(small_ + "--against-stock --resume " + path("pipe"),
                 "--resume: '" + path("pipe") + "' can be read only once");
}

TEST_F(TrainProgram, WhatStandardOutputAppendsToKeepsWhatItHolds) {
  write("log", "earlier\n");
  const Outcome outcome =
      shell(std::string(PLIMSOLL_PROGRAM) + " models mlp --quiet --json /dev/stdout >>" +
            path("log") + " 2>" + said("err"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const std::string log = read("log");
  ASSERT_THAT(log, ::testing::StartsWith("earlier\n{"));
  EXPECT_EQ(Json::parse(log.substr(log.find('{')))["command"], "models");
  EXPECT_THAT(names(), ::testing::ElementsAre("log"));
}

// The thread sanitizer itself needs files to start a program.
#ifndef __SANITIZE_THREAD__
// No file the program writes may grow beyond `kib` KiB: a disk that is full.
std::string with_files_of_at_most(int kib) {
  return "bash -c 'ulimit -f " + std::to_string(kib) + "; exec \"$@\"' bash";
}

TEST_F(TrainProgram, AFullDiskIsOneErrorAndLeavesTheOldFile) {
  const auto expect_no_room = [&](const std::string& flag, int kib) {
    write("target", "old");
    const Outcome outcome =
        run(small_ + "--steps 2 " + flag + " " + path("target"), with_files_of_at_most(kib));
    EXPECT_EQ(outcome.code, 4) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("plimsoll train: " + flag + ": no room, '" + path("target") +
                                       "' was not written: "));
    EXPECT_TRUE(outcome.is_one_line()) << outcome.err;
    EXPECT_EQ(read("target"), "old");
    EXPECT_THAT(names(), ::testing::ElementsAre("target"));
  };
  expect_no_room("--save", 8);
  expect_no_room("--report", 1);
}

TEST_F(TrainProgram, ASpillFolderWithoutRoomIsOutOfMemoryAndStaysEmpty) {
  const Outcome outcome =
      run(small_ + "--budget 60% --host-limit 16KiB --steps 3 --spill " + folder_.string(),
          with_files_of_at_most(8));
  EXPECT_EQ(outcome.code, 4) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("the disk of the spill folder is full"));
  EXPECT_TRUE(outcome.is_one_line()) << outcome.err;
  EXPECT_THAT(names(), ::testing::IsEmpty());
}
#endif

TEST_F(TrainProgram, ATruncatedDataFileNamesFileByteAndExpectation) {
  std::ofstream(folder_ / "train-images-idx3-ubyte", std::ios::binary)
      << std::string("\0\0\x08\x03\0\0\0\x02\0\0\0\x02\0\0\0\x03\x01\x02", 18);
  std::ofstream(folder_ / "train-labels-idx1-ubyte", std::ios::binary)
      << std::string("\0\0\x08\x01\0\0\0\x02\x04\x01", 10);
  const Outcome outcome = run(small_ + "--data " + folder_.string());
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("train-images-idx3-ubyte"), HasSubstr("byte 18"),
                                 HasSubstr("expected 10 bytes more")));
}

TEST_F(TrainProgram, WithoutATestSplitNothingIsTrainedOrSaved) {
  write("train-images-idx3-ubyte",
        std::string("\0\0\x08\x03\0\0\0\x01\0\0\0\x01\0\0\0\x01\x07", 17));
  write("train-labels-idx1-ubyte", std::string("\0\0\x08\x01\0\0\0\x01\x04", 9));
  const std::set<std::string> before = names();
  for (const std::string flag : {"--epochs 1000000", "--evaluate --steps 1000000000"})
    expect_refusal("train mlp --data " + folder_.string() + " --save " + path("run") + " " + flag,
                   "holds neither t10k-images-idx3-ubyte");
  EXPECT_EQ(names(), before);
}

TEST_F(TrainProgram, ACutRunIsRefusedWithFileAndByte) {
  const std::string mlp = "train mlp:layers=1,dim=8,image=8 --batch 4 ";
  ASSERT_EQ(run(mlp + "--steps 1 --save " + path("run")).code, 0);
  const std::string whole = read("run");
  for (const std::size_t length : {std::size_t{0}, std::size_t{100}, whole.size() - 1}) {
    write("cut", whole.substr(0, length));
    expect_refusal(
        mlp + "--steps 1000000000 --resume " + path("cut"),
        path("cut") + ", byte " + std::to_string(length) + ": the file ends here, expected ");
  }
}

TEST_F(TrainProgram, CtrlCEndsCleanlyAndLeavesNoHalfFiles) {
  write("run", "old");
  // The signal comes once training shows on standard error.
  const Outcome outcome = shell(
      std::string(PLIMSOLL_PROGRAM) +
      " train mlp:layers=1,dim=8,image=8 --steps 1000000000 --progress --json - --budget 1MiB" +
      " --save " + path("run") + " --report " + path("page") + " --trace " + path("trace") + " >" +
      said("out") + " 2>" + said("err") + " & program=$!\n" +
      "for i in $(seq 600); do grep -q 'train .*loss' " + said("err") +
      " && break; sleep 0.1; done\n" + "kill -INT $program; wait $program");
  EXPECT_EQ(outcome.code, 130);
  EXPECT_THAT(outcome.err, ::testing::EndsWith("\nplimsoll train: interrupted\n"));
  EXPECT_EQ(outcome.json()["error"]["code"], "interrupted");
  EXPECT_EQ(read("run"), "old");
  EXPECT_THAT(names(), ::testing::ElementsAre("run"));
}

}  // namespace
}  // namespace plimsoll::cli
