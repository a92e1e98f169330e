// SPDX-License-Identifier: Apache-2.0
// Makes data_ptr() of a storage throw for a time, where LibTorch can.
#pragma once

#include <c10/core/StorageImpl.h>

namespace plimsoll::detail {

// False for releases (2.11) that can forbid pointers but not allow them again: data_ptr() is null
// there where it would throw.
bool can_forbid_pointers();

// Does nothing where they cannot be forbidden.
void forbid_pointers(c10::StorageImpl* storage, const char* text);
void allow_pointers(c10::StorageImpl* storage);

}  // namespace plimsoll::detail
