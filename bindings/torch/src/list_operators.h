// SPDX-License-Identifier: Apache-2.0
// Operators over lists of tensors (_foreach_*, _fused_*, _amp_foreach_*), taken apart into slices.
//
// Nouns: ListShape (what of a schema goes by list entry), ListSlices.
//
//     _foreach_mul([a b c d], [s t u v])   becomes   _foreach_mul([a b], [s t])
//                                                    _foreach_mul([c d], [u v])
//
// They compute entry by entry, so any cut gives the same bits, and each slice needs only its own
// operands in the arena. Pinned whole, the gradients of a model would set the least budget.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include "tensor_storages.h"

namespace plimsoll::detail {

// Read once from a schema.
struct ListShape {
  enum class Part : std::uint8_t {
    kWhole,    // the same for every slice
    kList,     // a list of tensors or numbers, cut with the others; an empty one stays empty
    kScalars,  // a tensor with one number an entry, cut along its first dimension
    kChained,  // a tensor that a slice returns for the next one to take
  };
  // By argument; empty where the operator goes not by list entry.
  c10::SmallVector<Part, 16> arguments;
  // By return: lists are joined, what is chained is taken from the last slice.
  c10::SmallVector<Part, 4> returns;
  int chained_argument = -1;

  bool can_slice() const { return !arguments.empty(); }
};

// Never throws; a schema that is not understood cannot be sliced.
ListShape list_shape(const c10::FunctionSchema& schema);

// One call, cut. Threads: one.
class ListSlices {
 public:
  // Cuts the arguments on top of the stack so that each slice's distinct storages, with a result
  // as large as an entry for each returned list, take at most `limit_bytes`, or so little as one
  // entry takes. None where all fit into one slice, or where the lists do not match.
  static std::optional<ListSlices> cut(const ListShape& shape, const torch::jit::Stack& stack,
                                       const Place& place, std::int64_t limit_bytes);

  std::size_t count() const { return ends_.size(); }
  // What the largest slice needs at least: its operands. How large results are only the kernel
  // knows (a norm is one number).
  std::int64_t largest_bytes() const { return largest_bytes_; }
  // The arguments of slice i, with what earlier slices chained.
  torch::jit::Stack arguments(std::size_t i) const;
  // Takes what slice i returned, in order.
  void add_returns(torch::jit::Stack&& returns);
  // All slices' returns as the operator's own.
  torch::jit::Stack joined();

 private:
  ListSlices(const ListShape& shape, const torch::jit::Stack& stack, std::size_t first);

  const ListShape& shape_;
  std::vector<c10::IValue> whole_;  // the call's arguments
  std::vector<std::size_t> ends_;   // slice i is [ends_[i - 1], ends_[i])
  std::int64_t largest_bytes_ = 0;
  torch::jit::Stack joined_;
};

}  // namespace plimsoll::detail
