// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include <ATen/Parallel.h>
#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"
#include "plimsoll/data/dataset.h"
#include "plimsoll/session.h"
#include "plimsoll/version.h"

#include "torch_commands.h"

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

// The folder of the wheel's CUDA libraries, found beside LibTorch itself.
fs::path torch_library_folder() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&at::get_num_threads), &info) == 0) return {};
  return fs::path(info.dli_fname).parent_path();
}

// The library's file in the wheel's folders, else its plain name for the loader's own search.
std::string find_library(const std::string& name) {
  const fs::path nvidia = torch_library_folder() / ".." / ".." / "nvidia";
  std::error_code ignored;
  if (fs::is_directory(nvidia, ignored)) {
    for (auto it = fs::recursive_directory_iterator(nvidia, ignored);
         it != fs::recursive_directory_iterator(); it.increment(ignored)) {
      if (it->path().filename() == name) return fs::weakly_canonical(it->path()).string();
    }
  }
  return name;
}

Json driver_json(std::vector<std::string>& problems) {
  const Library driver("libcuda.so.1");
  const auto init = driver.find<int (*)(unsigned)>("cuInit");
  const auto version = driver.find<int (*)(int*)>("cuDriverGetVersion");
  if (init == nullptr || version == nullptr) {
    problems.emplace_back("no NVIDIA driver (libcuda.so.1): training runs on the CPU");
    return nullptr;
  }
  int number = 0;
  if (const int status = init(0); status != 0) {
    problems.push_back(
        fmt::format("the NVIDIA driver answers cuInit with error {}: no GPU can be used", status));
    return nullptr;
  }
  version(&number);
  return cuda_release(number);
}

Json devices_json() {
  Json devices = Json::array();
  const Library driver("libcuda.so.1");
  const auto init = driver.find<int (*)(unsigned)>("cuInit");
  const auto count = driver.find<int (*)(int*)>("cuDeviceGetCount");
  const auto get_name = driver.find<int (*)(char*, int, int)>("cuDeviceGetName");
  const auto total = driver.find<int (*)(std::size_t*, int)>("cuDeviceTotalMem_v2");
  if (init == nullptr || count == nullptr || get_name == nullptr || total == nullptr ||
      init(0) != 0)
    return devices;
  int found = 0;
  if (count(&found) != 0) return devices;
  for (int device = 0; device < found; ++device) {
    std::array<char, 256> name{};
    std::size_t bytes = 0;
    if (get_name(name.data(), static_cast<int>(name.size()), device) != 0 ||
        total(&bytes, device) != 0)
      continue;
    devices.push_back({{"name", name.data()}, {"memory_bytes", bytes}});
  }
  return devices;
}

Json toolkit_json(std::vector<std::string>& problems) {
  const Library runtime(find_library("libcudart.so.13"));
  const auto version = runtime.find<int (*)(int*)>("cudaRuntimeGetVersion");
  int number = 0;
  if (version == nullptr || version(&number) != 0) {
    problems.emplace_back("no CUDA 13 runtime (libcudart.so.13): only the CPU can be used");
    return nullptr;
  }
  return cuda_release(number);
}

Json cudnn_json(std::vector<std::string>& problems) {
  const Library cudnn(find_library("libcudnn.so.9"));
  const auto version = cudnn.find<std::size_t (*)()>("cudnnGetVersion");
  if (version == nullptr) {
    problems.emplace_back("no cuDNN 9 (libcudnn.so.9): only the CPU can be used");
    return nullptr;
  }
  const std::size_t number = version();
  return fmt::format("{}.{}.{}", number / 10000, number % 10000 / 100, number % 100);
}

Json data_json(std::vector<std::string>& problems) {
  try {
    const auto set = data::open_dataset("fashion-mnist", data::Split::kTest, 10);
    return {{"fashion-mnist",
             {{"folder", data::fashion_mnist_folder().string()}, {"test_images", set->count()}}}};
  } catch (const Error& error) {
    problems.emplace_back(error.what());
    return {{"fashion-mnist", nullptr}};
  }
}

class DoctorCommand : public Command {
 public:
  std::string name() const override { return "doctor"; }
  std::string summary() const override {
    return "Says what was found on this machine and what will not work, and why";
  }
  std::vector<std::string> examples() const override {
    return {"plimsoll doctor", "plimsoll doctor --json -"};
  }
  void declare(CLI::App&) override {}
  ExitCode run(Console& console, Json& result) override {
    std::vector<std::string> problems;
    result["threads"] = at::get_num_threads();
    result["cuda_toolkit"] = toolkit_json(problems);
    result["driver"] = driver_json(problems);
    result["devices"] = devices_json();
    result["cudnn"] = cudnn_json(problems);
    result["data"] = data_json(problems);
    const std::string self_test = interposer_self_test();
    result["self_test"] = self_test.empty() ? "ok" : self_test;
    result["problems"] = problems;
    for (const char* key :
         {"libtorch", "threads", "cuda_toolkit", "driver", "devices", "cudnn", "data", "self_test"})
      console.print(fmt::format("{:<13} {}", key, text_of(result[key])));
    for (const std::string& problem : problems) console.print("note: " + problem);
    return self_test.empty() ? kDone : kCheckFailed;
  }

 private:
  static std::string text_of(const Json& value) {
    if (value.is_null()) return "not found";
    if (value.is_string()) return value.get<std::string>();
    return value.empty() ? "none" : value.dump();
  }
};

}  // namespace

std::unique_ptr<Command> make_doctor_command() { return std::make_unique<DoctorCommand>(); }

}  // namespace plimsoll::cli
