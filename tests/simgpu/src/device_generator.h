// SPDX-License-Identifier: Apache-2.0
// Random numbers of a device, of both kinds of GeneratorKind.
//
// Nouns: DeviceGenerator.
#pragma once

#include <atomic>
#include <cstdint>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include "simgpu/device.h"

namespace plimsoll::simgpu {

// Threads: as every generator, under its mutex_.
class DeviceGenerator final : public c10::GeneratorImpl {
 public:
  DeviceGenerator(c10::DeviceIndex device, GeneratorKind kind);

  // What one operator that is issued now draws from, on its stream.
  at::Generator draw();
  GeneratorKind kind() const { return kind_; }
  // Keeps the seed.
  void set_kind(GeneratorKind kind);

  void set_current_seed(std::uint64_t seed) override;
  std::uint64_t current_seed() const override { return seed_; }
  std::uint64_t seed() override;
  void set_offset(std::uint64_t offset) override;
  std::uint64_t get_offset() const override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

 private:
  DeviceGenerator* clone_impl() const override;
  // Draws of earlier operators happen on their streams.
  void wait_for_draws() const;

  GeneratorKind kind_;
  std::uint64_t seed_;
  std::uint64_t offset_ = 0;  // kCounter
  at::Generator twin_;        // kSequential
};

const at::Generator& default_generator(c10::DeviceIndex device);
at::Generator new_generator(c10::DeviceIndex device);
void make_default_generators(GeneratorKind kind);

}  // namespace plimsoll::simgpu
