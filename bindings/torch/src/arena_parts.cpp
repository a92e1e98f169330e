// SPDX-License-Identifier: Apache-2.0
// Storages that an operator reads and writes in parts, because they are larger than what is left.
#include <utility>

#include "plimsoll/base/error.h"

#include "arena.h"

namespace plimsoll::detail {

ManagedStorage* Arena::manage_below(c10::StorageImpl* storage) {
  const auto bytes = static_cast<std::int64_t>(storage->nbytes());
  ManagedStorage* managed = new_managed(storage);
  try {
    managed->block = pool_->allocate_below(bytes, managed);
    const c10::DataPtr& memory = storage->_mutable_data_ptr_no_checks();
    if (memory.get() != nullptr) {
      pool_->write_part(managed->block, 0, memory.get(), bytes, device_->side());
      device_->note_use(memory);
    }
  } catch (...) {
    if (managed->block.valid()) pool_->deallocate(managed->block);
    managed_.erase(storage);
    throw;
  }
  // This ends the old DataPtr, by its own deleter.
  storage->set_data_ptr_noswap(data_at(nullptr, managed));
  say_evicted(storage);
  return managed;
}

bool Arena::stream(c10::StorageImpl* storage, OperatorFrame& frame) {
  const Lock lock(*this);
  try {
    device_->follow_current_stream();
    ManagedStorage* managed = find(storage);
    if (managed == nullptr) {
      // Outside of a step it stays as it is.
      if (!tracker_.is_in_step()) return true;
      const bool is_new = storage->_mutable_data_ptr_no_checks().get() == nullptr;
      const bool is_on_heap = !holds_unbound(storage);
      if (!is_new && is_on_heap && !is_movable(storage)) return false;
      managed = is_new || is_on_heap ? manage_below(storage) : manage(storage);
    }
    if (!managed->block.valid()) return false;
    ++managed->frames;
    frame.streamed.push_back(managed);
    return true;
  } catch (const HostOutOfMemory& error) {
    throw_host_full(error.what());
  }
}

void Arena::read_part(c10::StorageImpl* storage, std::int64_t offset, void* to,
                      std::int64_t bytes) {
  const Lock lock(*this);
  const ManagedStorage* managed = find(storage);
  if (managed != nullptr) {
    pool_->read_part(managed->block, offset, to, bytes);
  } else {
    const auto* from = static_cast<const char*>(storage->_mutable_data_ptr_no_checks().get());
    device_->copy(to, from + offset, bytes);
  }
}

void Arena::write_part(c10::StorageImpl* storage, std::int64_t offset, const void* from,
                       std::int64_t bytes) {
  const Lock lock(*this);
  const ManagedStorage* managed = find(storage);
  if (managed == nullptr) {
    auto* to = static_cast<char*>(storage->_mutable_data_ptr_no_checks().get());
    device_->copy(to + offset, from, bytes);
    return;
  }
  try {
    pool_->write_part(managed->block, offset, from, bytes);
  } catch (const HostOutOfMemory& error) {
    throw_host_full(error.what());
  }
}

bool Arena::leave_to_heap(const c10::SmallVectorImpl<Touched>& storages) {
  if (tracker_.is_in_step()) return false;
  for (const auto& [storage, writes] : storages) {
    ManagedStorage* managed = find(storage);
    if (managed != nullptr && managed->frames == 0 && managed->user_pins == 0) give_back(managed);
  }
  return true;
}

}  // namespace plimsoll::detail
