// SPDX-License-Identifier: Apache-2.0
// What `doctor` says will not work, for machines that are not this one.
#include "machine_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plimsoll/pool/file_tier.h"

namespace plimsoll::cli {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// Everything there, and nothing wrong that need not be.
MachineFacts good_machine() {
  MachineFacts facts;
  facts.libtorch.emplace();
  facts.libtorch->threads = 2;
  facts.libtorch->copy_threads = 2;
  facts.cuda_toolkit = "13.2";
  facts.cudnn = "9.26.0";
  facts.driver = "13.2";
  facts.devices = {{"GPU", 1}};
  facts.has_io_uring = true;
  facts.fashion_mnist_images = 10000;
  return facts;
}

void expect_problem(const MachineFacts& facts, const std::string& text) {
  EXPECT_THAT(problems_of(facts), Contains(HasSubstr(text)));
  EXPECT_THAT(problems_of(good_machine()), Not(Contains(HasSubstr(text))));
}

TEST(MachineFacts, WhereAllIsThereOnlyWhatComesLaterIsLeft) {
  EXPECT_THAT(problems_of(good_machine()),
              ::testing::ElementsAre(HasSubstr("--level planned, guided, captured and --policy "
                                               "none, liveness, superneurons, recompute-only, "
                                               "optimal come later")));
}

TEST(MachineFacts, WhatLibTorchLacksIsNamed) {
  MachineFacts facts = good_machine();
  facts.libtorch->self_test = "saw 3 operators";
  expect_problem(facts, "no budget can be trusted: saw 3 operators");
  facts = good_machine();
  facts.libtorch->cuda_refusal = "device cuda: not held";
  expect_problem(facts,
                 "training runs on the CPU, whether there is a GPU or not: device cuda: not held");
  facts = good_machine();
  facts.libtorch->can_forbid_pointers = false;
  expect_problem(facts, "strict_pointers is refused");
  facts = good_machine();
  facts.libtorch->copy_threads = 1;
  expect_problem(facts, "a session's copies take 1 of 2 threads");
  facts = good_machine();
  facts.libtorch.reset();
  expect_problem(facts, "train and models do nothing: this program was built without LibTorch");
}

TEST(MachineFacts, WhatTheMachineLacksIsNamed) {
  MachineFacts facts = good_machine();
  facts.driver.reset();
  expect_problem(facts, "there is no NVIDIA driver (libcuda.so.1)");
  facts.driver_error = 999;
  expect_problem(facts, "answers cuInit with error 999");
  EXPECT_THAT(problems_of(facts), Not(Contains(HasSubstr("is no NVIDIA driver"))));
  facts = good_machine();
  facts.devices.clear();
  expect_problem(facts, "the NVIDIA driver knows none");
  facts = good_machine();
  facts.cuda_toolkit.reset();
  expect_problem(facts, "no CUDA 13 runtime");
  facts = good_machine();
  facts.cudnn.reset();
  expect_problem(facts, "no cuDNN 9");
  facts = good_machine();
  facts.has_io_uring = false;
  expect_problem(facts, "no io_uring");
  facts.has_io_uring.reset();
  facts.spill_problem = "no folder";
  expect_problem(facts, "--spill could not be tried: no folder");
  facts = good_machine();
  facts.fashion_mnist_problem = "--data: no images";
  expect_problem(facts, "--data: no images");
}

TEST(MachineFacts, AreThoseOfThisMachine) {
  const MachineFacts facts = find_machine_facts(std::nullopt);
  EXPECT_FALSE(facts.libtorch);
  pool::FileTierOptions options;
  options.folder = std::filesystem::temp_directory_path();
  EXPECT_EQ(facts.has_io_uring, pool::FileTier(options).uses_io_uring());
  EXPECT_TRUE(facts.devices.empty() || facts.driver) << "a GPU is found by its driver";
  EXPECT_EQ(facts.fashion_mnist_images > 0, facts.fashion_mnist_problem.empty());
}

}  // namespace
}  // namespace plimsoll::cli
