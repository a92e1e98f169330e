// SPDX-License-Identifier: Apache-2.0
// Finds accesses that no stream order, event or host wait puts in an order, whatever order they
// happen to run in.
//
//   stream 0   write A . . . . record e          write A        a tick each operation
//   stream 1                        \ wait e . read A  |        the read knows the first write,
//                                                      race     the second write not the read
//
// A vector clock per stream and one for the host, as in Lamport, "Time, Clocks and the Ordering of
// Events", CACM 1978, and Mattern, "Virtual Time and Global States", 1989. Work is checked when it
// is issued, so that neither delays nor luck are needed. All host threads share one clock: what
// one of them waited for counts for all, since mutexes between them cannot be seen. That misses
// races between host threads and never reports one that is none.
//
// Nouns: VectorClock, ByteRange, RangeAccess, RaceChecker.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "simgpu/races.h"
#include "streams_of_devices.h"

namespace plimsoll::simgpu {

class VectorClock {
 public:
  static constexpr int kHost = kQueues;
  std::uint64_t& of(int actor) { return ticks_[static_cast<std::size_t>(actor)]; }
  std::uint64_t of(int actor) const { return ticks_[static_cast<std::size_t>(actor)]; }
  void join(const VectorClock& other);

 private:
  std::array<std::uint64_t, kQueues + 1> ticks_{};
};

// Bytes [begin, end) of device memory or of a pinned range.
struct ByteRange {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};

struct RangeAccess {
  ByteRange range;
  bool writes = false;
};

// Threads: needs the runtime's lock around every call.
class RaceChecker {
 public:
  // An operation of a stream: it comes after all that the host knows and all before it on the
  // stream. `finished` are events that are known to have happened for this operation alone: what
  // comes after it on the stream does not learn of them.
  void issue(int queue, std::string_view operation, std::span<const RangeAccess> accesses,
             std::span<const VectorClock> finished = {});
  // An access by the host itself, such as freeing pinned memory.
  void access_from_host(std::string_view operation, std::span<const RangeAccess> accesses,
                        std::span<const VectorClock> finished = {});

  // What an event recorded now knows; a stream or the host that waits for it knows that too.
  VectorClock record(int queue) const;
  void wait(int queue, const VectorClock& event);
  void wait_on_host(const VectorClock& event) { host_.join(event); }

  // Whether the host knows all that ever touched the bytes to have happened.
  bool is_known_to_host(ByteRange range) const;

  // The bytes are given back to the system: what touched them is of no interest any more.
  void forget(ByteRange range);

  std::vector<Race> take_races();
  RaceCounts counts() const { return counts_; }

 private:
  struct Mark {
    int actor = 0;
    std::uint64_t tick = 0;  // 0: never
    const std::string* operation = nullptr;
  };
  // Reads of one actor but the last are ordered before it.
  struct Cell {
    std::uintptr_t end = 0;
    Mark write;
    std::vector<Mark> reads;
  };
  using Cells = std::map<std::uintptr_t, Cell>;

  void apply(const RangeAccess& access, const Mark& mark, const VectorClock& knows);
  void split(std::uintptr_t address);
  // The first cell of the range; gaps in it are filled with cells nobody has touched.
  Cells::iterator cover(ByteRange range);
  void check(const Mark& before, bool before_writes, const RangeAccess& access, const Mark& mark,
             const VectorClock& knows, ByteRange cell);
  const std::string* interned(std::string_view operation);

  std::array<VectorClock, kQueues> queues_;
  VectorClock host_;
  Cells cells_;
  std::set<std::string, std::less<>> operations_;
  std::vector<Race> races_;
  RaceCounts counts_;
};

}  // namespace plimsoll::simgpu
