// SPDX-License-Identifier: Apache-2.0
// Which storages NumPy arrays share, so that they are fixed for as long as that is so and no
// longer.
//
// Noun: ArrayHold.
//
// Tensor.numpy() makes a storage non-resizable for good, and a session leaves such storages where
// they stand. A hold knows when the last array is gone and makes the storage resizable again.
#pragma once

#include <c10/core/Storage.h>

namespace plimsoll::python {

// One array. Threads: any.
class ArrayHold {
 public:
  // Counts the storage where it is resizable still, or held already; one that somebody made
  // non-resizable before is left alone for good.
  explicit ArrayHold(const c10::Storage& storage);
  ~ArrayHold() { release(); }
  ArrayHold(const ArrayHold&) = delete;
  ArrayHold& operator=(const ArrayHold&) = delete;
  void release() noexcept;

 private:
  c10::StorageImpl* storage_ = nullptr;  // null where nothing is held
};

}  // namespace plimsoll::python
