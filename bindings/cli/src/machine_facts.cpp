// SPDX-License-Identifier: Apache-2.0
#include "machine_facts.h"

#include <dlfcn.h>

#include <array>
#include <system_error>
#include <utility>

#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

#include "plimsoll/base/error.h"
#include "plimsoll/data/dataset.h"
#include "plimsoll/pool/file_tier.h"

#include "level_names.h"

namespace plimsoll::cli {
namespace {

namespace fs = std::filesystem;

// "13.2" of 13020, CUDA's own way to write its releases.
std::string cuda_release(int number) {
  return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

struct Library {
  explicit Library(const std::string& name) : handle(::dlopen(name.c_str(), RTLD_LAZY)) {}
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library() {
    if (handle != nullptr) ::dlclose(handle);
  }
  template <typename Function>
  Function find(const char* symbol) const {
    return handle == nullptr ? nullptr : reinterpret_cast<Function>(::dlsym(handle, symbol));
  }
  void* handle;
};

// The library's file in the folders beside a wheel's LibTorch, else its plain name for the loader's
// own search.
std::string find_library(const MachineFacts& facts, const std::string& name) {
  if (!facts.libtorch) return name;
  const fs::path nvidia = facts.libtorch->folder / ".." / ".." / "nvidia";
  std::error_code ignored;
  if (fs::is_directory(nvidia, ignored)) {
    for (auto it = fs::recursive_directory_iterator(nvidia, ignored);
         it != fs::recursive_directory_iterator(); it.increment(ignored)) {
      if (it->path().filename() == name) return fs::weakly_canonical(it->path()).string();
    }
  }
  return name;
}

void find_driver(MachineFacts& facts) {
  const Library driver("libcuda.so.1");
  const auto init = driver.find<int (*)(unsigned)>("cuInit");
  const auto version = driver.find<int (*)(int*)>("cuDriverGetVersion");
  if (init == nullptr || version == nullptr) return;
  int number = 0;
  version(&number);  // needs no cuInit
  facts.driver = cuda_release(number);
  constexpr int kNoDevice = 100;  // CUDA_ERROR_NO_DEVICE: all is well but for a GPU
  const int error = init(0);
  if (error != kNoDevice) facts.driver_error = error;
  if (error != 0) return;
  const auto count = driver.find<int (*)(int*)>("cuDeviceGetCount");
  const auto get_name = driver.find<int (*)(char*, int, int)>("cuDeviceGetName");
  const auto total = driver.find<int (*)(std::size_t*, int)>("cuDeviceTotalMem_v2");
  int found = 0;
  if (count == nullptr || get_name == nullptr || total == nullptr || count(&found) != 0) return;
  for (int device = 0; device < found; ++device) {
    std::array<char, 256> name{};
    std::size_t bytes = 0;
    if (get_name(name.data(), static_cast<int>(name.size()), device) == 0 &&
        total(&bytes, device) == 0)
      facts.devices.push_back({name.data(), bytes});
  }
}

void find_cuda_libraries(MachineFacts& facts) {
  const Library runtime(find_library(facts, "libcudart.so.13"));
  int number = 0;
  if (const auto version = runtime.find<int (*)(int*)>("cudaRuntimeGetVersion");
      version != nullptr && version(&number) == 0)
    facts.cuda_toolkit = cuda_release(number);
  const Library cudnn(find_library(facts, "libcudnn.so.9"));
  if (const auto version = cudnn.find<std::size_t (*)()>("cudnnGetVersion"); version != nullptr) {
    const std::size_t release = version();
    facts.cudnn = fmt::format("{}.{}.{}", release / 10000, release % 10000 / 100, release % 100);
  }
}

void try_spill(MachineFacts& facts) {
  try {
    pool::FileTierOptions options;
    options.folder = fs::temp_directory_path();
    facts.has_io_uring = pool::FileTier(options).uses_io_uring();
  } catch (const std::exception& error) {
    facts.spill_problem = error.what();
  }
}

void find_data(MachineFacts& facts) {
  facts.fashion_mnist_folder = data::fashion_mnist_folder();
  try {
    facts.fashion_mnist_images =
        data::open_dataset("fashion-mnist", data::Split::kTest, 10)->count();
  } catch (const Error& error) {
    facts.fashion_mnist_problem = error.what();
  }
}

void add_libtorch_problems(const LibTorchFacts& libtorch, std::vector<std::string>& problems) {
  if (!libtorch.self_test.empty())
    problems.push_back("operators are not seen as they should, no budget can be trusted: " +
                       libtorch.self_test);
  if (!libtorch.cuda_refusal.empty())
    problems.push_back("training runs on the CPU, whether there is a GPU or not: " +
                       libtorch.cuda_refusal);
  problems.push_back(
      fmt::format("train --level {} and --policy {} come later; there are {}, and {}",
                  fmt::join(kLaterLevels, ", "), fmt::join(kLaterPolicies, ", "),
                  fmt::join(kLevels, ", "), fmt::join(kPolicies, ", ")));
  if (!libtorch.can_forbid_pointers)
    problems.emplace_back(
        "strict_pointers is refused: this LibTorch can make data_ptr() throw, but not take that "
        "back; later releases can");
  if (libtorch.copy_threads < libtorch.threads)
    problems.push_back(
        fmt::format("a session's copies take {} of {} threads: this program was compiled without "
                    "the OpenMP library that LibTorch uses; compile it with GCC",
                    libtorch.copy_threads, libtorch.threads));
}

}  // namespace

MachineFacts find_machine_facts(std::optional<LibTorchFacts> libtorch) {
  MachineFacts facts;
  facts.libtorch = std::move(libtorch);
  find_driver(facts);
  find_cuda_libraries(facts);
  try_spill(facts);
  find_data(facts);
  return facts;
}

std::vector<std::string> problems_of(const MachineFacts& facts) {
  std::vector<std::string> problems;
  if (facts.libtorch) {
    add_libtorch_problems(*facts.libtorch, problems);
  } else {
    problems.push_back("train and models do nothing: " + missing_libtorch());
  }
  if (facts.driver_error != 0) {
    problems.push_back(
        fmt::format("no GPU: the NVIDIA driver answers cuInit with error {}", facts.driver_error));
  } else if (!facts.driver) {
    problems.emplace_back("no GPU: there is no NVIDIA driver (libcuda.so.1)");
  } else if (facts.devices.empty()) {
    problems.emplace_back("no GPU: the NVIDIA driver knows none");
  }
  if (!facts.cuda_toolkit)
    problems.emplace_back("no CUDA 13 runtime (libcudart.so.13): only the CPU can be used");
  if (!facts.cudnn) problems.emplace_back("no cuDNN 9 (libcudnn.so.9): only the CPU can be used");
  if (!facts.has_io_uring) {
    problems.push_back("--spill could not be tried: " + facts.spill_problem);
  } else if (!*facts.has_io_uring) {
    problems.emplace_back(
        "no io_uring (the build has no liburing, or the kernel refuses a ring): files of --spill "
        "are read and written by pread and pwrite");
  }
  if (!facts.fashion_mnist_problem.empty()) problems.push_back(facts.fashion_mnist_problem);
  return problems;
}

std::string missing_libtorch() {
  return "this program was built without LibTorch; build it with one (2.11 to 2.15): ./dev build "
         "fetches it, or configure with -DPLIMSOLL_WITH_TORCH=ON -DPLIMSOLL_TORCH_DIR=DIR, the "
         "torch folder of a wheel or an archive";
}

}  // namespace plimsoll::cli
