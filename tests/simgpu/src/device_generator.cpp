// SPDX-License-Identifier: Apache-2.0
#include "device_generator.h"

#include <array>
#include <cstring>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "runtime.h"

namespace plimsoll::simgpu {
namespace {

constexpr std::size_t kCounterStateBytes = 2 * sizeof(std::uint64_t);  // seed, offset

std::array<at::Generator, kDevices>& defaults() {
  static auto* const generators = new std::array<at::Generator, kDevices>();
  return *generators;
}

// Another stream of numbers for every seed and offset (splitmix64's finaliser).
std::uint64_t mixed(std::uint64_t seed, std::uint64_t offset) {
  std::uint64_t x = seed + 0x9E3779B97F4A7C15ULL * (offset + 1);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

}  // namespace

DeviceGenerator::DeviceGenerator(c10::DeviceIndex device, GeneratorKind kind)
    : c10::GeneratorImpl(c10::Device(kType, device),
                         c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      kind_(kind),
      seed_(c10::detail::getNonDeterministicRandom()),
      twin_(at::detail::createCPUGenerator(seed_)) {}

at::Generator DeviceGenerator::draw() {
  if (kind_ == GeneratorKind::kSequential) return twin_;
  const std::uint64_t offset = offset_;
  offset_ += 4;  // CUDA's increments are multiples of four
  return at::detail::createCPUGenerator(mixed(seed_, offset));
}

void DeviceGenerator::wait_for_draws() const {
  if (kind_ == GeneratorKind::kSequential) runtime().drain(device_.index());
}

void DeviceGenerator::set_kind(GeneratorKind kind) {
  if (kind == kind_) return;
  wait_for_draws();
  kind_ = kind;
  set_current_seed(seed_);
}

void DeviceGenerator::set_current_seed(std::uint64_t seed) {
  wait_for_draws();
  seed_ = seed;
  offset_ = 0;
  twin_.set_current_seed(seed);
}

std::uint64_t DeviceGenerator::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return seed_;
}

void DeviceGenerator::set_offset(std::uint64_t offset) {
  TORCH_CHECK(kind_ == GeneratorKind::kCounter, "simgpu: a sequential generator has no offset");
  TORCH_CHECK(offset % 4 == 0, "offset must be a multiple of 4");
  offset_ = offset;
}

std::uint64_t DeviceGenerator::get_offset() const {
  TORCH_CHECK(kind_ == GeneratorKind::kCounter, "simgpu: a sequential generator has no offset");
  return offset_;
}

c10::intrusive_ptr<c10::TensorImpl> DeviceGenerator::get_state() const {
  if (kind_ == GeneratorKind::kSequential) {
    wait_for_draws();
    return twin_.get_state().unsafeReleaseIntrusivePtr();
  }
  const std::array<std::uint64_t, 2> words{seed_, offset_};
  at::Tensor state = at::empty({kCounterStateBytes}, at::TensorOptions().dtype(at::kByte));
  std::memcpy(state.mutable_data_ptr(), words.data(), kCounterStateBytes);
  return state.unsafeReleaseIntrusivePtr();
}

void DeviceGenerator::set_state(const c10::TensorImpl& state) {
  if (kind_ == GeneratorKind::kSequential) {
    wait_for_draws();
    twin_.unsafeGetGeneratorImpl()->set_state(state);
    seed_ = twin_.current_seed();
    return;
  }
  TORCH_CHECK(state.numel() == static_cast<std::int64_t>(kCounterStateBytes) &&
                  state.device().is_cpu() &&
                  state.dtype() == caffe2::TypeMeta::Make<std::uint8_t>(),
              "simgpu: a counter-based generator's state is ", kCounterStateBytes, " bytes");
  std::array<std::uint64_t, 2> words{};
  std::memcpy(words.data(), state.data(), kCounterStateBytes);
  seed_ = words[0];
  offset_ = words[1];
}

DeviceGenerator* DeviceGenerator::clone_impl() const {
  wait_for_draws();
  auto* copy = new DeviceGenerator(device_.index(), kind_);
  copy->seed_ = seed_;
  copy->offset_ = offset_;
  copy->twin_ = twin_.clone();
  return copy;
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  const c10::DeviceIndex index = device < 0 ? 0 : device;
  TORCH_CHECK(index < kDevices, "simgpu: there is no device sim:", static_cast<int>(index));
  return defaults()[static_cast<std::size_t>(index)];
}

at::Generator new_generator(c10::DeviceIndex device) {
  const GeneratorKind kind = runtime().options().generator;
  return at::make_generator<DeviceGenerator>(device < 0 ? c10::DeviceIndex{0} : device, kind);
}

void make_default_generators(GeneratorKind kind) {
  for (c10::DeviceIndex device = 0; device < kDevices; ++device) {
    at::Generator& generator = defaults()[static_cast<std::size_t>(device)];
    if (generator.defined()) {
      const std::lock_guard lock(generator.mutex());
      generator.get<DeviceGenerator>()->set_kind(kind);
    } else {
      generator = at::make_generator<DeviceGenerator>(device, kind);
    }
  }
}

}  // namespace plimsoll::simgpu
