// SPDX-License-Identifier: Apache-2.0
#include "array_holds.h"

#include <cstdint>
#include <mutex>
#include <utility>

#include <c10/util/flat_hash_map.h>

namespace plimsoll::python {
namespace {

struct Held {
  // Keeps the address from being used again, and the storage from nothing.
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  std::int64_t arrays = 0;
};

struct Table {
  std::mutex mutex;
  ska::flat_hash_map<c10::StorageImpl*, Held> held;
};

// Leaked: arrays end after static destructors have run.
Table& table() {
  static auto* const kTable = new Table();
  return *kTable;
}

}  // namespace

ArrayHold::ArrayHold(const c10::Storage& storage) {
  c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
  const std::lock_guard lock(table().mutex);
  const auto found = table().held.find(impl);
  if (found != table().held.end()) {
    ++found->second.arrays;
  } else if (impl->resizable()) {
    auto weak = c10::weak_intrusive_ptr<c10::StorageImpl>(
        c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(impl));
    table().held.emplace(impl, Held{std::move(weak), 1});
  } else {
    return;
  }
  storage_ = impl;
}

void ArrayHold::release() noexcept {
  c10::StorageImpl* impl = std::exchange(storage_, nullptr);
  if (impl == nullptr) return;
  c10::intrusive_ptr<c10::StorageImpl> alive;  // dropped after the lock
  const std::lock_guard lock(table().mutex);
  const auto found = table().held.find(impl);
  if (--found->second.arrays > 0) return;
  alive = found->second.storage.lock();
  table().held.erase(found);
  if (alive != nullptr) alive->set_resizable(true);
}

}  // namespace plimsoll::python
