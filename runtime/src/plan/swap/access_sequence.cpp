// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/plan/access_sequence.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/bytes.h"
#include "plimsoll/base/error.h"

namespace plimsoll::plan {
namespace {

// The bound on every sum of sizes; twice a sum and a sum over two laps still fit in 64 bits.
constexpr std::int64_t kLargestTotalBytes = std::int64_t{1} << 60;

std::int64_t position_of(SwapOpId op, Lap lap, std::int64_t op_count) {
  return op.value() + (lap == Lap::kPreviousStep ? op_count : 0);
}

}  // namespace

std::span<const TimedAccess> AccessSequence::accesses(SwapStorageId storage) const {
  const std::size_t begin = first_access_.at(storage.index());
  const std::size_t end = first_access_.at(storage.index() + 1);
  return std::span(accesses_).subspan(begin, end - begin);
}

std::int64_t AccessSequence::next_access(SwapStorageId storage, std::int64_t position) const {
  const std::span<const TimedAccess> list = accesses(storage);
  const auto next = std::ranges::upper_bound(list, position, {}, &TimedAccess::position);
  if (next != list.end()) return next->position;
  if (life(storage).kind == StorageKind::kTransient || list.empty()) return kNeverAccessed;
  return list.front().position + op_count();
}

std::int64_t AccessSequence::persistent_bytes() const {
  std::int64_t total = 0;
  for (const StorageLife& life : lives_)
    if (life.kind == StorageKind::kPersistent) total += life.size_bytes;
  return total;
}

void AccessSequenceBuilder::check_op(SwapOpId op) const {
  if (!op.valid() || op.value() >= sequence_.op_count())
    throw InvalidArgument(fmt::format("operator {} is none of the {} added so far", op.value(),
                                      sequence_.op_count()));
}

void AccessSequenceBuilder::check_storage(SwapStorageId storage, Lap lap) const {
  if (!storage.valid() || storage.value() >= sequence_.storage_count())
    throw InvalidArgument(fmt::format("storage {} is none of the {} added so far", storage.value(),
                                      sequence_.storage_count()));
  if (lap == Lap::kPreviousStep && sequence_.life(storage).kind == StorageKind::kPersistent)
    throw InvalidArgument(fmt::format(
        "storage {} is persistent: it has no instance of the previous step", storage.value()));
}

SwapOpId AccessSequenceBuilder::add_op(std::int64_t scratch_bytes, std::string name) {
  if (scratch_bytes < 0 || scratch_bytes > kLargestTotalBytes)
    throw InvalidArgument(fmt::format("operator {} has {} bytes of scratch, not within [0, 2^60]",
                                      sequence_.op_count(), scratch_bytes));
  const SwapOpId op(sequence_.scratch_bytes_.size());
  sequence_.scratch_bytes_.push_back(scratch_bytes);
  sequence_.op_names_.push_back(std::move(name));
  return op;
}

SwapStorageId AccessSequenceBuilder::add_storage(std::int64_t size_bytes, StorageKind kind,
                                                 Mobility mobility) {
  if (size_bytes < 0 || size_bytes > kLargestTotalBytes)
    throw InvalidArgument(fmt::format("storage {} has {} bytes, not within [0, 2^60]",
                                      sequence_.storage_count(), size_bytes));
  const SwapStorageId storage(sequence_.lives_.size());
  sequence_.lives_.push_back({.size_bytes = size_bytes, .kind = kind, .mobility = mobility});
  releases_.push_back({});
  return storage;
}

void AccessSequenceBuilder::access(SwapOpId op, SwapStorageId storage, Access access, Lap lap) {
  check_op(op);
  check_storage(storage, lap);
  touches_.push_back(
      {.storage = storage, .op = op, .lap = lap, .writes = access == Access::kWrite});
}

void AccessSequenceBuilder::release_after(SwapStorageId storage, SwapOpId op, Lap lap) {
  check_op(op);
  check_storage(storage, lap);
  if (sequence_.life(storage).kind == StorageKind::kPersistent)
    throw InvalidArgument(
        fmt::format("storage {} is persistent: it is never released", storage.value()));
  releases_[storage.index()] = {.op = op, .lap = lap};
}

// Sorts the touches by (storage, position) and merges equal ones.
void AccessSequenceBuilder::fill_accesses() {
  std::ranges::sort(touches_, {},
                    [](const Touch& t) { return std::tuple(t.storage, t.lap, t.op); });
  auto touch = touches_.begin();
  for (std::size_t storage = 0; storage < sequence_.lives_.size(); ++storage) {
    const std::size_t begin = sequence_.accesses_.size();
    sequence_.first_access_.push_back(begin);
    for (; touch != touches_.end() && touch->storage.index() == storage; ++touch) {
      const std::int64_t position = position_of(touch->op, touch->lap, sequence_.op_count());
      if (sequence_.accesses_.size() > begin && sequence_.accesses_.back().position == position)
        sequence_.accesses_.back().writes |= touch->writes;
      else
        sequence_.accesses_.push_back({.position = position, .writes = touch->writes});
    }
  }
  sequence_.first_access_.push_back(sequence_.accesses_.size());
}

// Sets birth and death of a storage whose accesses stand.
void AccessSequenceBuilder::finish_life(std::size_t storage) {
  const std::int64_t n = sequence_.op_count();
  StorageLife& life = sequence_.lives_[storage];
  if (life.kind == StorageKind::kPersistent) {
    life.birth = 0;
    life.death = n - 1;
    return;
  }
  const std::size_t begin = sequence_.first_access_[storage];
  const std::size_t end = sequence_.first_access_[storage + 1];
  if (begin == end)
    throw InvalidArgument(
        fmt::format("storage {} is transient and no operator touches it: who makes it?", storage));
  TimedAccess& first = sequence_.accesses_[begin];
  if (first.position >= n)
    throw InvalidArgument(
        fmt::format("storage {} is touched only in the step after the one that makes it", storage));
  first.writes = true;
  const std::int64_t last = sequence_.accesses_[end - 1].position;
  const Release& release = releases_[storage];
  life.birth = first.position;
  life.death = release.op.valid() ? position_of(release.op, release.lap, n) : last;
  if (life.death < last)
    throw InvalidArgument(fmt::format("storage {} is released after position {} but touched at {}",
                                      storage, life.death, last));
}

AccessSequence AccessSequenceBuilder::build() && {
  if (sequence_.op_count() == 0) throw InvalidArgument("an access sequence needs an operator");
  std::int64_t total = *std::ranges::max_element(sequence_.scratch_bytes_);
  for (const StorageLife& life : sequence_.lives_) {
    total = checked_add(total, life.size_bytes);
    if (total > kLargestTotalBytes)
      throw InvalidArgument("the storages of an access sequence exceed 2^60 bytes in all");
  }
  fill_accesses();
  for (std::size_t storage = 0; storage < sequence_.lives_.size(); ++storage) finish_life(storage);
  return std::move(sequence_);
}

}  // namespace plimsoll::plan
