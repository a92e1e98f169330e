// SPDX-License-Identifier: Apache-2.0
// What this machine and this build have, and what follows from it.
//
// Nouns: LibTorchFacts, MachineFacts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace plimsoll::cli {

// Of the LibTorch that is loaded.
struct LibTorchFacts {
  std::filesystem::path folder;  // of its libraries
  int threads = 1;               // of operators
  int copy_threads = 1;          // of a session's copies
  bool can_forbid_pointers = true;
  std::string cuda_refusal;  // why sessions do not hold CUDA devices; "" where they do
  std::string self_test;     // what the interposer did wrong; "" for nothing
};

struct MachineFacts {
  struct Gpu {
    std::string name;
    std::uint64_t memory_bytes = 0;
  };
  std::optional<LibTorchFacts> libtorch;    // none in a build without it
  std::optional<std::string> cuda_toolkit;  // releases
  std::optional<std::string> cudnn;
  std::optional<std::string> driver;
  int driver_error = 0;  // of a driver that is there and does not start
  std::vector<Gpu> devices;
  // Whether files of the spill folder go through io_uring; none where not even that could be tried,
  // and why.
  std::optional<bool> has_io_uring;
  std::string spill_problem;
  std::filesystem::path fashion_mnist_folder;
  std::int64_t fashion_mnist_images = 0;  // of the test split
  std::string fashion_mnist_problem;      // why there are none
};

// Looks and tries; loads the CUDA driver and libraries where they are found.
MachineFacts find_machine_facts(std::optional<LibTorchFacts> libtorch);

// What will not work and why, a sentence each.
std::vector<std::string> problems_of(const MachineFacts& facts);

// What a build without LibTorch lacks and how to get it.
std::string missing_libtorch();

}  // namespace plimsoll::cli
