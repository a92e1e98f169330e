// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "plimsoll/base/error.h"
#include "plimsoll/data/dataset.h"

namespace plimsoll::data {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class DataFiles : public ::testing::Test {
 protected:
  DataFiles()
      : folder_(fs::path(::testing::TempDir()) / ("plimsoll_data_" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
  }
  ~DataFiles() override { fs::remove_all(folder_); }

  fs::path write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }
  fs::path write_gzip(const std::string& name, const std::string& bytes) {
    const fs::path path = folder_ / name;
    gzFile file = gzopen(path.c_str(), "wb");
    gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
    gzclose(file);
    return path;
  }
  static std::string read(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }
  // Two images of 2 x 3 with the pixels 0..11 and the labels 4 and 1.
  static std::string images() {
    std::string bytes("\0\0\x08\x03\0\0\0\x02\0\0\0\x02\0\0\0\x03", 16);
    for (char pixel = 0; pixel < 12; ++pixel) bytes += pixel;
    return bytes;
  }
  static std::string labels() { return std::string("\0\0\x08\x01\0\0\0\x02\x04\x01", 10); }

  static void expect_refusal(const std::function<void()>& body, const std::string& position,
                             const std::string& problem) {
    try {
      body();
      FAIL() << "accepted, expected: " << problem;
    } catch (const InvalidFile& error) {
      EXPECT_EQ(error.position(), position);
      EXPECT_THAT(error.what(), HasSubstr(problem));
    }
  }

  fs::path folder_;
};

TEST_F(DataFiles, IdxIsReadPlainAndGzip) {
  for (const ImageSet& set :
       {read_idx(write("i", images()), write("l", labels())),
        read_idx(write_gzip("i.gz", images()), write_gzip("l.gz", labels()))}) {
    EXPECT_EQ(set.count(), 2);
    EXPECT_EQ(set.height, 2);
    EXPECT_EQ(set.width, 3);
    EXPECT_EQ(set.channels, 1);
    EXPECT_EQ(set.classes, 5);
    EXPECT_EQ(set.pixels[11], 11);
    EXPECT_EQ(set.labels, std::vector<std::uint8_t>({4, 1}));
  }
}

TEST_F(DataFiles, EveryTruncationOfAnIdxFileIsRefusedAtItsEnd) {
  const fs::path good = write("l", labels());
  for (std::size_t length = 0; length < images().size(); ++length) {
    const fs::path cut = write("i", images().substr(0, length));
    expect_refusal([&] { read_idx(cut, good); }, "byte " + std::to_string(length), "expected");
  }
  const fs::path pixels = write("i", images());
  for (std::size_t length = 0; length < labels().size(); ++length) {
    const fs::path cut = write("l", labels().substr(0, length));
    // What is missing of the magic number, the size, or the two labels.
    const std::size_t end = length < 4 ? 4 : length < 8 ? 8 : 10;
    expect_refusal([&] { read_idx(pixels, cut); }, "byte " + std::to_string(length),
                   cut.string() + ", byte " + std::to_string(length) +
                       ": the file ends here, expected " + std::to_string(end - length) +
                       " bytes more of ");
  }
}

TEST_F(DataFiles, ADamagedIdxHeaderIsRefusedAtItsByte) {
  const fs::path good = write("l", labels());
  std::string bytes = images();
  bytes[2] = 9;
  expect_refusal([&] { read_idx(write("i", bytes), good); }, "byte 0", "0x00000803");
  bytes = images();
  bytes[11] = 0;
  expect_refusal([&] { read_idx(write("i", bytes), good); }, "byte 8", "dimension 1 is 0");
  bytes = images();
  bytes.replace(4, 12, std::string(12, '\x7f'));
  expect_refusal([&] { read_idx(write("i", bytes), good); }, "byte 8", "no image set");
  expect_refusal([&] { read_idx(write("i", images() + "x"), good); }, "byte 28", "bytes follow");
  // The labels' file in the images' place.
  expect_refusal([&] { read_idx(good, good); }, "byte 0", "magic");
}

TEST_F(DataFiles, LabelsOfAnotherCountAreRefused) {
  const fs::path three = write("l", std::string("\0\0\x08\x01\0\0\0\x03\x04\x01\x02", 11));
  expect_refusal([&] { read_idx(write("i", images()), three); }, "byte 4", "3 labels, expected 2");
}

TEST_F(DataFiles, EveryTruncationOfAGzipFileIsRefusedWithFileAndByte) {
  const fs::path pixels = write("i", images());
  const std::string whole = read(write_gzip("l.gz", labels()));
  // A first byte alone is no gzip, but one byte of a plain file.
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const fs::path cut = write("l.gz", whole.substr(0, length));
    try {
      read_idx(pixels, cut);
      ADD_FAILURE() << "accepted, cut to " << length << " of " << whole.size();
    } catch (const InvalidFile& error) {
      EXPECT_EQ(error.file(), cut.string());
      EXPECT_THAT(error.position(), ::testing::MatchesRegex("byte [0-9]+")) << length;
      EXPECT_THAT(error.what(), AnyOf(HasSubstr("the gzip stream is damaged or cut off"),
                                      HasSubstr("the file ends here, expected")))
          << length;
    }
  }
}

TEST_F(DataFiles, AGzipFileWithAWrongChecksumOrLengthIsRefused) {
  const fs::path good = write("l", labels());
  const std::string whole = read(write_gzip("i.gz", images()));
  for (const std::size_t from_end : {8, 7, 6, 5, 4, 3, 2, 1}) {  // CRC-32, then the length
    std::string damaged = whole;
    damaged[damaged.size() - from_end] ^= 0x55;
    const fs::path path = write("i.gz", damaged);
    try {
      read_idx(path, good);
      ADD_FAILURE() << "accepted, damaged " << from_end << " before the end";
    } catch (const InvalidFile& error) {
      EXPECT_EQ(error.file(), path.string());
      EXPECT_THAT(error.position(), ::testing::MatchesRegex("byte [0-9]+"));
      EXPECT_THAT(error.what(), HasSubstr("the gzip stream is damaged or cut off"));
      EXPECT_THAT(error.what(), HasSubstr(from_end > 4 ? "data check" : "length check"));
    }
  }
}

TEST_F(DataFiles, AReadThatFailsIsNotTakenForADamagedFile) {
  // The first page of a process cannot be read, by root neither.
  const fs::path broken = folder_ / "broken";
  fs::create_symlink("/proc/self/mem", broken);
  const std::string problem = broken.string() + ", byte 0: cannot be read: Input/output error";
  const auto same = [&](const std::function<void()>& body) {
    try {
      body();
      ADD_FAILURE() << "accepted";
    } catch (const InvalidFile& error) {
      EXPECT_STREQ(error.what(), problem.c_str());
    }
  };
  same([&] { read_idx(broken, write("l", labels())); });
  same([&] { read_idx(write("i", images()), broken); });
  same([&] { read_cifar10({broken}); });
}

TEST_F(DataFiles, AMissingFileNamesItself) {
  expect_refusal([&] { read_idx(folder_ / "none", folder_ / "none"); }, "", "none");
  expect_refusal([&] { read_idx(folder_, folder_); }, "", "folder");
}

TEST_F(DataFiles, CifarRecordsAreRead) {
  std::string record(3073, '\x05');
  record[0] = 9;
  const ImageSet set = read_cifar10({write("a", record + record), write("b", record)});
  EXPECT_EQ(set.count(), 3);
  EXPECT_EQ(set.channels, 3);
  EXPECT_EQ(set.classes, 10);
  EXPECT_EQ(set.labels[2], 9);
  EXPECT_EQ(set.pixels.size(), 3U * 3072U);
}

TEST_F(DataFiles, DamagedCifarFilesAreRefusedAtTheirByte) {
  std::string record(3073, '\x05');
  expect_refusal([&] { read_cifar10({write("a", record + record.substr(0, 100))}); }, "byte 3173",
                 "expected 2973 bytes more of record 1");
  expect_refusal([&] { read_cifar10({write("a", record), write("b", record.substr(0, 3072))}); },
                 "byte 3072",
                 "b, byte 3072: the file ends here, expected 1 bytes more of record 0");
  expect_refusal([&] { read_cifar10({write("a", "")}); }, "byte 0", "record 0");
  std::string wrong = record;
  wrong[0] = 10;
  expect_refusal([&] { read_cifar10({write("a", record + wrong)}); }, "byte 3073", "label 10");
}

TEST_F(DataFiles, AFolderIsRecognisedByItsFiles) {
  write_gzip("train-images-idx3-ubyte.gz", images());
  write("train-labels-idx1-ubyte", labels());
  EXPECT_EQ(open_dataset(folder_.string(), Split::kTrain, 10)->count(), 2);
  EXPECT_THROW(open_dataset(folder_.string(), Split::kTest, 10), InvalidArgument);
  write("test_batch.bin", std::string(3073, '\x05'));
  EXPECT_EQ(open_dataset(folder_.string(), Split::kTest, 10)->count(), 1);
}

TEST_F(DataFiles, WhatIsNoDataSetSaysWhatWouldBe) {
  try {
    open_dataset("fashion-minst", Split::kTrain, 10);
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("fashion-mnist, synthetic or a folder"));
  }
}

TEST_F(DataFiles, FashionMnistIsReadWhereItIsInstalled) {
  ASSERT_TRUE(fs::exists(fashion_mnist_folder()))
      << "the package dataset-fashion-mnist is missing; ./dev setup installs it";
  const auto set = open_dataset("fashion-mnist", Split::kTest, 10);
  EXPECT_EQ(set->count(), 10000);
  EXPECT_EQ(set->classes(), 10);
  EXPECT_EQ(set->label(0), 9);  // an ankle boot
}

}  // namespace
}  // namespace plimsoll::data
