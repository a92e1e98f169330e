// SPDX-License-Identifier: Apache-2.0
// How many devices and streams there are, and the number of each of their queues.
//
// Nouns: queue number.
#pragma once

#include <string>

#include <c10/core/Stream.h>

namespace plimsoll::simgpu {

constexpr int kDevices = 2;
// Stream 0 is the default one, the others are the pool's.
constexpr int kStreamsPerDevice = 9;
constexpr int kQueues = kDevices * kStreamsPerDevice;
constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;

inline c10::Stream stream_of(c10::DeviceIndex device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, device), id);
}

inline int queue_of(const c10::Stream& stream) {
  return static_cast<int>(stream.device_index()) * kStreamsPerDevice +
         static_cast<int>(stream.id());
}

// "sim:0 stream 3"; the host is the queue after the last.
inline std::string queue_name(int queue) {
  if (queue == kQueues) return "the host";
  return "sim:" + std::to_string(queue / kStreamsPerDevice) + " stream " +
         std::to_string(queue % kStreamsPerDevice);
}

}  // namespace plimsoll::simgpu
