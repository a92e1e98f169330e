// SPDX-License-Identifier: Apache-2.0
// Leaves out what keeps a program's streams in order, everywhere or once, for tests that show that
// its absence is noticed.
//
// Nouns: SyncKind, SyncPoint, Mutation.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include <c10/core/Stream.h>

namespace plimsoll::simgpu {

enum class SyncKind : std::uint8_t {
  kStreamWait,         // a stream waits for an event
  kEventSynchronize,   // the host waits for an event
  kStreamSynchronize,  // the host waits for a stream, or for a device
  kRecordStream,       // a block is used on a stream that is not its own
  kPinnedRecord,       // pinned memory is used by a copy that the host does not wait for
};

// One place where order is asked for. `ordinal` counts the points of its kind since the mutation
// began; `waiting` is the stream that waits or uses the block, where there is one; `awaited` the
// stream that recorded the event.
struct SyncPoint {
  SyncKind kind = SyncKind::kStreamWait;
  std::int64_t ordinal = 0;
  std::optional<c10::Stream> waiting;
  std::optional<c10::Stream> awaited;
};

// While one lives, the points it picks do nothing. One at a time.
class Mutation {
 public:
  // Every point of a kind, or its n-th (from 0) alone.
  explicit Mutation(SyncKind kind, std::optional<std::int64_t> nth = std::nullopt);
  explicit Mutation(std::function<bool(const SyncPoint&)> leaves_out);
  ~Mutation();
  Mutation(const Mutation&) = delete;
  Mutation& operator=(const Mutation&) = delete;

  // How many points of all kinds it was asked about, and how many it left out.
  std::int64_t seen() const;
  std::int64_t left_out() const;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace plimsoll::simgpu
