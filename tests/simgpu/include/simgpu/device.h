// SPDX-License-Identifier: Apache-2.0
// A GPU without a GPU: a back end of LibTorch on DispatchKey::PrivateUse1, named "sim", with two
// devices. Operators run with real numbers on threads, one a stream, after they have returned to
// the host. For tests only.
//
// Nouns: DeviceOptions, Delays, MemoryCounts.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include <c10/core/Device.h>

namespace plimsoll::simgpu {

// kSequential: mt19937 drawn from in stream order, the CPU's numbers for the CPU's seed; reading
// its state waits for the device. kCounter: as CUDA's Philox: seed and offset are taken when the
// operator is issued, reading the state waits for nothing, and the numbers are its own.
enum class GeneratorKind : std::uint8_t { kSequential, kCounter };

struct DeviceOptions {
  // Of each device, free blocks kept for reuse included.
  std::int64_t capacity_bytes = std::int64_t{1} << 30;
  GeneratorKind generator = GeneratorKind::kSequential;
  // Launches allocate on the device what their CPU kernel needed for temporaries.
  bool has_workspaces = true;
  // Fills freed and fresh memory with 0xFF, in stream order.
  bool poisons = true;
  // Keeps pinned memory that a copy of LibTorch's uses until the copy is done, as the CUDA host
  // allocator does. Where false it is as cudaHostAlloc's: freeing it early is a race.
  bool guards_pinned_frees = true;
};

// Random waits in front of every job, and in the middle of large copies; none by default.
struct Delays {
  std::uint64_t seed = 0;
  std::int64_t longest_us = 0;
};

// Registers the back end in this process: the first call of the program, before other threads use
// LibTorch. Later calls change the options; capacity and generator take effect at once, for what
// is issued afterwards. A registered back end is the process's accelerator: never beside CUDA.
void install(const DeviceOptions& options = {});

// Waits for all work first. Determinism: the same seed gives the same waits, not the same
// interleaving.
void set_delays(const Delays& delays);

struct MemoryCounts {
  std::int64_t live_bytes = 0;      // of blocks somebody holds, rounded
  std::int64_t peak_bytes = 0;      // of live_bytes, since reset_peak
  std::int64_t reserved_bytes = 0;  // live, cached, or waiting for other streams
  std::int64_t allocations = 0;
  std::int64_t reuses = 0;          // answered by a block freed on the same stream
  std::int64_t deferred_frees = 0;  // that waited for streams given to recordStream
  std::int64_t out_of_memory = 0;
};
MemoryCounts memory_counts(c10::DeviceIndex device);
void reset_peak(c10::DeviceIndex device);
// Waits for the device and gives blocks nobody holds back to the system.
void empty_cache();

struct CallCounts {
  std::int64_t asynchronous = 0;  // operators that returned before they ran
  std::int64_t first_seen = 0;    // that were waited for, since their results' sizes were unknown
  std::int64_t host_results = 0;  // that were waited for by their nature
};
CallCounts call_counts();

// The text of what went wrong on a device after it was issued; "" if nothing has. Such an error
// stays: every later call on the device fails, as after a device-side assert.
std::string device_error(c10::DeviceIndex device);
// Waits for all work and makes the device usable again; for tests only, no GPU can do this.
void clear_device_errors();
// Issues a job that fails on the current stream of the device.
void inject_device_error(c10::DeviceIndex device, const std::string& text);

// Waits for all streams of all devices without telling the checker or the clocks, so that what it
// waits for is still a race where the program does not wait itself.
void drain();

// Pinned memory, freed but kept from reuse.
std::int64_t quarantined_bytes();

}  // namespace plimsoll::simgpu
