// SPDX-License-Identifier: Apache-2.0
// One training step as the storages that its operators touch, the input of the eager level's
// eviction planner.
//
// Nouns: AccessSequence (the value), AccessSequenceBuilder, position (a moment in it).
//
// A step is n operators, 0 .. n-1, repeated for ever. A *position* p counts operators from the
// start of some step: operator p of that step where p < n, operator p - n of the next one where
// n <= p < 2n. A transient storage is made anew in every step; the instance made at position
// `birth` < n lives up to and including position `death` < 2n, so a loss that is still held while
// the next step computes its own is one storage whose lifetime laps the end of the step:
//
//     step t                         step t+1
//     0       birth      n-1 | n          death         2n-1
//     . . . . [W . . R . . . | R . . . . .] . . . . . . .        instance made in step t
//
// A persistent storage (parameter, optimizer state, running statistics) exists at all times, its
// accesses lie in [0, n), and the state at the end of the step is that at the start of the next.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plimsoll/base/id.h"

namespace plimsoll::plan {

using SwapOpId = Id<struct SwapOpTag>;
using SwapStorageId = Id<struct SwapStorageTag>;

enum class StorageKind : std::uint8_t { kPersistent, kTransient };
// An immovable storage counts while it lives and is never evicted.
enum class Mobility : std::uint8_t { kMovable, kImmovable };
enum class Access : std::uint8_t { kRead, kWrite };
// Which instance of a storage an operator touches: the one made in the same step, or the one the
// step before made.
enum class Lap : std::uint8_t { kThisStep, kPreviousStep };

// One operator's touch of one storage, as a position in the storage's own life.
struct TimedAccess {
  std::int64_t position = 0;
  bool writes = false;
  friend bool operator==(const TimedAccess&, const TimedAccess&) = default;
};

// `birth` and `death` are the first and the last position at which an instance lives; 0 and n - 1
// for a persistent storage.
struct StorageLife {
  std::int64_t size_bytes = 0;
  StorageKind kind = StorageKind::kTransient;
  Mobility mobility = Mobility::kMovable;
  std::int64_t birth = 0;
  std::int64_t death = 0;
  friend bool operator==(const StorageLife&, const StorageLife&) = default;
};

inline constexpr std::int64_t kNeverAccessed = -1;

// A checked, immutable sequence. Invariants: at least one operator; accesses of a storage sorted
// by position, at most one a position; a transient's first access is its birth and writes;
// birth < n, birth <= last access <= death < 2n; all sums of sizes fit in 60 bits.
// Threads: const calls are safe. Cost: O(operators + storages + accesses) bytes.
class AccessSequence {
 public:
  class Builder;

  std::int64_t op_count() const { return static_cast<std::int64_t>(scratch_bytes_.size()); }
  std::int64_t storage_count() const { return static_cast<std::int64_t>(lives_.size()); }
  std::int64_t access_count() const { return static_cast<std::int64_t>(accesses_.size()); }

  const StorageLife& life(SwapStorageId storage) const { return lives_.at(storage.index()); }
  std::span<const TimedAccess> accesses(SwapStorageId storage) const;
  std::int64_t scratch_bytes(SwapOpId op) const { return scratch_bytes_.at(op.index()); }
  const std::string& op_name(SwapOpId op) const { return op_names_.at(op.index()); }

  // Returns the first position after `position` at which this storage is touched: for a transient
  // in the life of its instance, for a persistent one within the n operators that follow (so the
  // result may be >= n). kNeverAccessed where there is none. Cost: O(log accesses of the storage).
  std::int64_t next_access(SwapStorageId storage, std::int64_t position) const;

  // Sizes of all that is persistent, in bytes.
  std::int64_t persistent_bytes() const;

  friend bool operator==(const AccessSequence&, const AccessSequence&) = default;

 private:
  AccessSequence() = default;

  std::vector<std::int64_t> scratch_bytes_;
  std::vector<std::string> op_names_;
  std::vector<StorageLife> lives_;
  std::vector<std::size_t> first_access_;  // storage -> index into accesses_, one past the end last
  std::vector<TimedAccess> accesses_;
};

// Collects a step in program order. Every call checks its own arguments, build() the rest; all
// throw InvalidArgument that names the storage, the operator and what is right, and leave the
// builder as it was. Single owner.
class AccessSequence::Builder {
 public:
  // Adds the next operator. `scratch_bytes` >= 0 counts only while it runs.
  SwapOpId add_op(std::int64_t scratch_bytes, std::string name = {});
  // Adds a storage of `size_bytes` >= 0.
  SwapStorageId add_storage(std::int64_t size_bytes, StorageKind kind,
                            Mobility mobility = Mobility::kMovable);
  // Operator `op` touches `storage`, which must be resident while it runs. The same touch twice
  // is one, and writes if either did. kPreviousStep is for transients only.
  void access(SwapOpId op, SwapStorageId storage, Access access, Lap lap = Lap::kThisStep);
  // The transient's instance is freed right after operator `op` has run. Default: after its last
  // access. The last call wins.
  void release_after(SwapStorageId storage, SwapOpId op, Lap lap = Lap::kThisStep);

  // Returns the checked sequence; the builder is spent.
  // Cost: O(accesses log accesses).
  AccessSequence build() &&;

 private:
  struct Touch {
    SwapStorageId storage;
    SwapOpId op;
    Lap lap;
    bool writes;
  };
  struct Release {
    SwapOpId op;
    Lap lap = Lap::kThisStep;
  };
  void check_op(SwapOpId op) const;
  void check_storage(SwapStorageId storage, Lap lap) const;
  void fill_accesses();
  void finish_life(std::size_t storage);

  AccessSequence sequence_;
  std::vector<Touch> touches_;
  std::vector<Release> releases_;
};

using AccessSequenceBuilder = AccessSequence::Builder;

}  // namespace plimsoll::plan
