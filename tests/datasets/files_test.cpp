// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "plimsoll/base/error.h"
#include "plimsoll/data/dataset.h"

namespace plimsoll::data {
namespace {

namespace fs = std::filesystem;
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

TEST_F(DataFiles, ADamagedGzipStreamIsRefused) {
  const fs::path good = write("l", labels());
  const fs::path path = write_gzip("i.gz", images());
  fs::resize_file(path, fs::file_size(path) - 6);
  EXPECT_THROW(read_idx(path, good), InvalidFile);
  std::string bytes(fs::file_size(write_gzip("i.gz", images())), '\0');
  std::ifstream(path, std::ios::binary).read(bytes.data(), static_cast<long>(bytes.size()));
  bytes[bytes.size() - 7] ^= 0x55;  // in the checksum
  EXPECT_THROW(read_idx(write("i.gz", bytes), good), InvalidFile);
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
                 "record 1");
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
