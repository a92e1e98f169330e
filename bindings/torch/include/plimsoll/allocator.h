// SPDX-License-Identifier: Apache-2.0
// Level 0: LibTorch's allocator for one device with a hard limit and an exact account of memory.
//
// Nouns: AllocatorOptions, AllocatorStatistics, PeakOwner.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/Device.h>

namespace plimsoll {

// Where in a program an allocation was made.
enum class AllocationKind : std::uint8_t {
  kForward,   // inside an operator, outside of backward
  kBackward,  // inside an operator of a backward pass
  kOutside,   // outside of any operator: user code, data loading, library handles
};
inline constexpr int kAllocationKinds = 3;
std::string_view allocation_kind_name(AllocationKind kind) noexcept;

struct AllocatorOptions {
  // The CPU, or a device of a back end on PrivateUse1; without an index, the current one.
  c10::Device device{c10::DeviceType::CPU};
  // Bytes that may be live at once; 0 means no limit. Counts what is allocated through LibTorch's
  // allocator for the device from now on, each request rounded up to 64 bytes; storages that exist
  // already keep their own deleter and are not counted.
  std::int64_t limit_bytes = 0;
  // Names the operator behind each allocation. Costs about 0.2 us per operator.
  bool attribute = true;
  // Places allocations by plan once mark_step() has shown a repeating step: about a nanosecond each
  // instead of the heap's tens to thousands. Each thread that marks steps gets an arena of the most
  // its steps need, which is live and counted as one block while it is held; what stands in it is
  // not counted again, so limits hold and peaks say what memory is taken, not what is in use.
  // The CPU only.
  bool plan = false;
};

// Who held how much at the peak.
struct PeakOwner {
  std::string operator_name;  // "" outside of operators
  AllocationKind kind = AllocationKind::kOutside;
  std::int64_t ordinal = 0;  // the how-manyeth allocation since install_allocator
  std::int64_t bytes = 0;    // rounded
};

struct AllocatorStatistics {
  struct PerKind {
    std::int64_t live_bytes = 0;
    std::int64_t allocated_bytes = 0;  // in all, since the last reset
    std::int64_t allocations = 0;      // in all, since the last reset
  };
  std::int64_t limit_bytes = 0;
  std::int64_t live_bytes = 0;
  std::int64_t live_blocks = 0;
  std::int64_t peak_bytes = 0;
  std::string peak_op;  // the operator whose allocation made the peak
  std::array<PerKind, kAllocationKinds> kinds;
  std::int64_t refused = 0;  // requests answered with OutOfMemoryError
};

// What planned allocation did since it was switched on; steps are counted at their marks.
struct PlannedAllocations {
  std::int64_t steps = 0;
  std::int64_t planned = 0;  // requests answered from a plan
  // The rest was left to the heap:
  std::int64_t missed = 0;   // not in the plan, or no plan yet
  std::int64_t escaped = 0;  // in the plan as outliving its step
  std::int64_t refused = 0;  // in the plan, but what stands in its place was still alive
  std::int64_t plans_made = 0;
  std::int64_t arena_bytes = 0;  // held now
};

// Makes Plimsoll LibTorch's allocator for the device, for the rest of the process; a further call
// changes the options. Errors: InvalidArgument (a negative limit, an index that does not exist),
// Unsupported (a device whose memory is not held, a plan on a device, an allocator of higher
// priority that somebody else has set). Over the limit a request throws c10::OutOfMemoryError with
// request, live bytes, limit and the largest request that would fit; nothing changes then. Threads:
// safe. Call it early: what exists already is not counted. Like a session it also calls MKL's
// vector functions once, on this thread: where operator threads make the first call of one
// together, oneMKL 2024.2 may compute a part of it to half of its bits (pytorch/pytorch issue
// 188792).
void install_allocator(const AllocatorOptions& options = {});

// Ends the calling thread's step (an inference request, a training step) and begins its next one.
// Does nothing where no plan was asked for. Outputs that outlive the step are fine: their bytes are
// kept until they are freed. Cost: some tens of nanoseconds on plan.
void mark_step();
PlannedAllocations planned_allocations();

// What follows is of one device's account, the CPU's unless said; an unknown device is Unsupported.

// The account since install_allocator. Zero everywhere before it. Threads: safe.
AllocatorStatistics allocator_statistics(c10::Device device = c10::DeviceType::CPU);

// Sets the peak to what is live now and the totals to zero; live figures stay.
void reset_allocator_statistics(c10::Device device = c10::DeviceType::CPU);

// What was live at the peak, largest first, at most `most` entries. Exact: blocks freed since the
// peak are remembered. Cost: O(live blocks).
std::vector<PeakOwner> peak_owners(std::size_t most = 20,
                                   c10::Device device = c10::DeviceType::CPU);

// Writes down what is allocated and freed from now on, the newest `most_events` of it; 0 stops and
// forgets. Takes 40 bytes an event, at once. Allocations answered from a plan are not seen, their
// arena is. Errors: InvalidArgument before install_allocator, std::bad_alloc.
void record_memory_history(std::size_t most_events = 100'000,
                           c10::Device device = c10::DeviceType::CPU);

// What was written down, and what lives now, as a PyTorch memory snapshot: a pickle for PyTorch's
// memory viewer and for `plimsoll explain`. An operator stands for a call stack, and each block
// in a segment of its own, since the heap underneath is not looked into.
// Errors: InvalidArgument where nothing is being recorded.
std::string memory_snapshot(c10::Device device = c10::DeviceType::CPU);

}  // namespace plimsoll
