// SPDX-License-Identifier: Apache-2.0
// Every test on the device ends with the checker's word.
#pragma once

#include <cstring>

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "simgpu/device.h"
#include "simgpu/mutations.h"
#include "simgpu/races.h"
#include "simgpu/timeline.h"

namespace plimsoll::simgpu {

inline c10::Device sim(int index = 0) {
  return {c10::kPrivateUse1, static_cast<c10::DeviceIndex>(index)};
}

inline torch::TensorOptions on_sim(int index = 0) {
  return torch::TensorOptions().device(sim(index));
}

inline c10::impl::VirtualGuardImpl guard_impl() {
  return c10::impl::VirtualGuardImpl(c10::kPrivateUse1);
}

inline c10::Stream default_stream(int index = 0) {
  return guard_impl().getDefaultStream(sim(index));
}
inline c10::Stream pool_stream(int index = 0) {
  return guard_impl().getStreamFromGlobalPool(sim(index));
}

inline bool same_bits(const torch::Tensor& left, const torch::Tensor& right) {
  if (left.defined() != right.defined()) return false;
  if (!left.defined()) return true;
  if (left.scalar_type() != right.scalar_type() || left.sizes() != right.sizes()) return false;
  const torch::Tensor a = left.detach().cpu().resolve_conj().resolve_neg().contiguous();
  const torch::Tensor b = right.detach().cpu().resolve_conj().resolve_neg().contiguous();
  return a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

class OnDevice : public ::testing::Test {
 protected:
  // Here as well, so that the members of derived fixtures may be of the device.
  OnDevice() { install(); }
  void SetUp() override {
    install();
    set_delays({});
  }
  void TearDown() override {
    drain();
    clear_device_errors();
    for (const Race& race : take_races()) ADD_FAILURE() << race.text();
    // What the test still holds is freed in order.
    for (int device = 0; device < 2; ++device) guard_impl().synchronizeDevice(device);
  }
};

}  // namespace plimsoll::simgpu
