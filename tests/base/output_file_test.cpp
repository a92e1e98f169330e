// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/base/output_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plimsoll/base/error.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class OutputFiles : public ::testing::Test {
 protected:
  OutputFiles()
      : folder_(fs::path(::testing::TempDir()) /
                ("plimsoll_output_" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
  }
  ~OutputFiles() override { fs::remove_all(folder_); }

  static void write(const fs::path& path, const std::string& text) {
    OutputFile file(path, "--out");
    file.write(text.data(), text.size());
    file.commit();
  }
  static std::string read(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }
  std::ptrdiff_t count() const { return std::distance(fs::directory_iterator(folder_), {}); }

  fs::path folder_;
};

TEST_F(OutputFiles, TakesItsNameOnlyWhereItIsCommitted) {
  const fs::path target = folder_ / "a";
  write(target, "one");
  {
    OutputFile file(target, "--out");
    file.write("two", 3);
    EXPECT_EQ(read(target), "one");
  }
  EXPECT_EQ(read(target), "one");
  EXPECT_EQ(count(), 1);
  write(target, "three");
  EXPECT_EQ(read(target), "three");
  EXPECT_EQ(count(), 1);
}

TEST_F(OutputFiles, ALinkIsFollowedAndStays) {
  fs::create_directory(folder_ / "real");
  write(folder_ / "real" / "file", "old");
  fs::create_symlink(folder_ / "real" / "file", folder_ / "link");
  check_writable(folder_ / "link", "--out");
  write(folder_ / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(read(folder_ / "real" / "file"), "new");
  EXPECT_EQ(count(), 2);
}

TEST_F(OutputFiles, APipeIsWrittenAndStaysAPipe) {
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  check_writable(pipe, "--out");
  write(pipe, "text");
  EXPECT_TRUE(fs::is_fifo(pipe));
  std::array<char, 8> got{};
  EXPECT_EQ(::read(reader, got.data(), got.size()), 4);
  EXPECT_STREQ(got.data(), "text");
  ::close(reader);
  EXPECT_EQ(count(), 1);
}

TEST_F(OutputFiles, WhatCannotBeWrittenNamesFlagPathAndCause) {
  write(folder_ / "file", "old");
  const auto expect_refusal = [&](const fs::path& path, const std::string& cause) {
    const std::string text = "--out: '" + path.string() + "' cannot be written: " + cause;
    EXPECT_THAT([&] { check_writable(path, "--out"); },
                ThrowsMessage<InvalidArgument>(HasSubstr(text)));
    EXPECT_THAT([&] { write(path, "new"); }, ThrowsMessage<InvalidArgument>(HasSubstr(text)));
  };
  expect_refusal(folder_, "Is a directory");
  expect_refusal(folder_ / "none" / "file", "No such file or directory");
  expect_refusal(folder_ / "file" / "below", "Not a directory");
  expect_refusal("/proc/plimsoll-x", "No such file or directory");
  EXPECT_EQ(count(), 1);
  EXPECT_EQ(read(folder_ / "file"), "old");
}

// Writes more than the process may, says what was thrown on standard error and ends the process.
[[noreturn]] void write_too_much(const fs::path& path) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  limit.rlim_cur = limit.rlim_max = 4096;
  ::setrlimit(RLIMIT_FSIZE, &limit);
  const std::string text(5000, 'x');
  try {
    OutputFile file(path, "--out");
    file.write(text.data(), text.size());
    file.commit();
  } catch (const HostOutOfMemory& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::_Exit(4);
  }
  std::_Exit(0);
}

TEST_F(OutputFiles, WithoutRoomTheOldFileStaysAndTheErrorSaysSo) {
  write(folder_ / "file", "old");
  EXPECT_EXIT(write_too_much(folder_ / "file"), ::testing::ExitedWithCode(4),
              "--out: no room, '.*/file' was not written: File too large");
  EXPECT_EQ(read(folder_ / "file"), "old");
  EXPECT_EQ(count(), 1);
}

}  // namespace
}  // namespace plimsoll
