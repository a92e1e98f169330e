// SPDX-License-Identifier: Apache-2.0
#include "pointer_checks.h"

#include <string>

namespace plimsoll::detail {
namespace {

template <typename Storage>
concept CanAllow = requires(Storage& storage) { storage.clear_data_ptr_access_error_msg_(); };

template <typename Storage>
void allow(Storage& storage) {
  if constexpr (CanAllow<Storage>) storage.clear_data_ptr_access_error_msg_();
}

}  // namespace

bool can_forbid_pointers() { return CanAllow<c10::StorageImpl>; }

void forbid_pointers(c10::StorageImpl* storage, const char* text) {
  if (!can_forbid_pointers()) return;
  storage->release_data_and_set_meta_custom_data_ptr_error_msg_(std::string(text));
}

void allow_pointers(c10::StorageImpl* storage) { allow(*storage); }

}  // namespace plimsoll::detail
