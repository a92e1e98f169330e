// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/base/output_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <new>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plimsoll/base/error.h"

namespace {

// How many allocations of this thread still succeed. Below zero: all.
thread_local int t_allocations_left = -1;

void* limited(std::size_t bytes) {
  if (t_allocations_left == 0) throw std::bad_alloc();
  if (t_allocations_left > 0) --t_allocations_left;
  void* block = std::malloc(bytes);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

}  // namespace

void* operator new(std::size_t bytes) { return limited(bytes); }
void* operator new[](std::size_t bytes) { return limited(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return std::malloc(bytes); }
// Not inlined: under sanitizers GCC takes new and free() for a pair that does not fit.
[[gnu::noinline]] void operator delete(void* block) noexcept { std::free(block); }
[[gnu::noinline]] void operator delete[](void* block) noexcept { std::free(block); }
[[gnu::noinline]] void operator delete(void* block, std::size_t) noexcept { std::free(block); }
[[gnu::noinline]] void operator delete[](void* block, std::size_t) noexcept { std::free(block); }

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
  static std::ptrdiff_t open_descriptors() {
    return std::distance(fs::directory_iterator("/proc/self/fd"), {});
  }
  // Opened as a shell opens what follows `>>`.
  int appending(const std::string& name) const {
    return ::open((folder_ / name).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  }
  static std::string listed(int descriptor) { return "/dev/fd/" + std::to_string(descriptor); }

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

TEST_F(OutputFiles, ALinkToWhatDoesNotExistYetIsFollowedToo) {
  fs::create_directory(folder_ / "real");
  fs::create_symlink("second", folder_ / "first");  // relative to the link's own folder
  fs::create_symlink(fs::path("real") / "run7", folder_ / "second");
  check_writable(folder_ / "first", "--out");
  EXPECT_FALSE(fs::exists(folder_ / "real" / "run7"));
  write(folder_ / "first", "new");
  EXPECT_TRUE(fs::is_symlink(folder_ / "first"));
  EXPECT_TRUE(fs::is_symlink(folder_ / "second"));
  EXPECT_EQ(read(folder_ / "real" / "run7"), "new");
  EXPECT_EQ(count(), 3);
}

TEST_F(OutputFiles, ADescriptorIsWrittenWhereItStandsWhateverIsBehindIt) {
  std::ofstream(folder_ / "log") << "earlier\n";
  const int log = appending("log");
  const auto inode = [&] {
    struct stat found{};
    ::stat((folder_ / "log").c_str(), &found);
    return found.st_ino;
  };
  const auto before = inode();
  check_writable(listed(log), "--out");
  write(listed(log), "one\n");
  const std::string number = std::to_string(log);
  fs::create_symlink("/proc/self/fd/" + number, folder_ / "link");
  write(folder_ / "link", "two\n");
  write("/proc/thread-self/fd/" + number, "three\n");
  EXPECT_EQ(read(folder_ / "log"), "earlier\none\ntwo\nthree\n");
  EXPECT_EQ(inode(), before);
  EXPECT_EQ(count(), 2);
  EXPECT_EQ(::write(log, "four\n", 5), 5) << "it is not ours to close";
  ::close(log);
}

TEST_F(OutputFiles, ADescriptorOfAFileWithoutANameIsWrittenToo) {
  const int file = ::open((folder_ / "gone").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  fs::remove(folder_ / "gone");
  check_writable(listed(file), "--out");
  write(listed(file), "text");
  std::array<char, 8> got{};
  EXPECT_EQ(::pread(file, got.data(), got.size(), 0), 4);
  EXPECT_STREQ(got.data(), "text");
  EXPECT_EQ(count(), 0);
  ::close(file);
}

TEST_F(OutputFiles, AnotherProcessesDescriptorIsAppendedTo) {
  std::ofstream(folder_ / "log") << "earlier\n";
  std::array<int, 2> stop{};
  ASSERT_EQ(::pipe2(stop.data(), O_CLOEXEC), 0);
  const int log = appending("log");
  const pid_t other = ::fork();
  if (other == 0) {
    ::close(stop[1]);
    char byte = 0;
    ::_exit(static_cast<int>(::read(stop[0], &byte, 1)));
  }
  ::close(log);
  const std::string theirs = "/proc/" + std::to_string(other) + "/fd/" + std::to_string(log);
  check_writable(theirs, "--out");
  write(theirs, "new\n");
  EXPECT_EQ(read(folder_ / "log"), "earlier\nnew\n");
  EXPECT_EQ(count(), 1);
  ::close(stop[0]);
  ::close(stop[1]);
  ::waitpid(other, nullptr, 0);
}

TEST_F(OutputFiles, ADescriptorThatDoesNotWaitIsWrittenToItsEnd) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK), 0);
  const std::string text(std::size_t{1} << 20, 'x');  // more than a pipe holds
  std::size_t got = 0;
  std::thread reader([&] {
    std::array<char, 4096> part{};
    while (got < text.size()) {
      const ssize_t bytes = ::read(ends[0], part.data(), part.size());
      if (bytes > 0) got += static_cast<std::size_t>(bytes);
      if (bytes == 0) break;
      if (bytes < 0) std::this_thread::yield();
    }
  });
  EXPECT_NO_THROW(write(listed(ends[1]), text));
  ::close(ends[1]);
  reader.join();
  ::close(ends[0]);
  EXPECT_EQ(got, text.size());
}

TEST_F(OutputFiles, TwoWritersOfOneFileDoNotShareATemporary) {
  const fs::path target = folder_ / "a";
  OutputFile first(target, "--out");
  OutputFile second(target, "--out");
  first.write("first", 5);
  second.write("2nd", 3);
  first.commit();
  EXPECT_EQ(read(target), "first");
  second.commit();
  EXPECT_EQ(read(target), "2nd");
  EXPECT_EQ(count(), 1);
}

TEST_F(OutputFiles, WithoutMemoryNeitherFileNorDescriptorStays) {
  const fs::path target = folder_ / std::string(100, 'a');  // no short string
  const std::ptrdiff_t before = open_descriptors();
  bool is_done = false;
  int allocations = 0;
  for (; !is_done && allocations < 1000; ++allocations) {
    t_allocations_left = allocations;
    try {
      const OutputFile file(target, "--out");
      is_done = true;
    } catch (const std::exception&) {  // a library may say it in its own words
    }
    t_allocations_left = -1;
    ASSERT_EQ(count(), 0) << allocations;
    ASSERT_EQ(open_descriptors(), before) << allocations;
  }
  EXPECT_TRUE(is_done);
  EXPECT_GT(allocations, 4) << "nothing failed";
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
  expect_refusal("/dev/fd/1000000", "Bad file descriptor");
  expect_refusal("/dev/fd/99999999999", "Bad file descriptor");
  const int reader = ::open((folder_ / "file").c_str(), O_RDONLY | O_CLOEXEC);
  expect_refusal(listed(reader), "Bad file descriptor");
  ::close(reader);
  fs::create_symlink("loop", folder_ / "loop");
  expect_refusal(folder_ / "loop", "Too many levels of symbolic links");
  EXPECT_EQ(count(), 2);
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
