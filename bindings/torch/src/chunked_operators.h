// SPDX-License-Identifier: Apache-2.0
// Pointwise operators on tensors that do not fit, a chunk of elements at a time.
//
// Noun: ChunkedCall.
//
//     tiers  [ p . . . . . . ]  [ m . . . . . . ]  [ v . . . . . . ]      addcdiv_(p, m, v)
//               |  streamed in     |                  |
//     arena    [ chunk ]          [ chunk ]          [ chunk ]   the kernel runs on these
//               |  and back
//
// Only operators whose every element is rounded exactly, so that the cut cannot show in the bits:
// the arithmetic of optimizers. Transcendental ones round differently in vector and scalar code,
// where the cut falls decides which, and they run whole.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/util/FunctionRef.h>
#include <c10/util/SmallVector.h>

#include "tensor_storages.h"

namespace plimsoll::detail {

class Arena;
struct OperatorInfo;

// Says whether an operator of this name and schema may be run in chunks.
bool is_exactly_rounded(const c10::FunctionSchema& schema);

// One call that could run in chunks: its large tensors have one shape and one dense layout. Holds
// references to nothing: the stack has to stay as it is.
class ChunkedCall {
 public:
  static std::optional<ChunkedCall> of(const OperatorInfo& info, const torch::jit::Stack& stack,
                                       const Place& place);

  // Distinct storages of the large operands whose bytes matter, and a result where the operator
  // makes one.
  std::int64_t bytes() const { return bytes_; }
  const c10::SmallVectorImpl<c10::StorageImpl*>& storages() const { return storages_; }
  // The storages of the other tensors, which are single numbers.
  const c10::SmallVectorImpl<c10::StorageImpl*>& numbers() const { return numbers_; }

  // Runs the kernel on chunks that take about `chunk_bytes` together, allocated by whatever the
  // caller's thread allocates from, and replaces the arguments on the stack by the result.
  // `make_result` makes the whole result, without bytes of its own, from a chunk of it.
  // Errors: those of the kernel and of the copies, after which what in-place chunks have written
  // stays written.
  void run(torch::jit::Stack& stack, std::int64_t chunk_bytes, Arena& arena,
           c10::function_ref<void(torch::jit::Stack*)> run_kernel,
           c10::function_ref<at::Tensor(const at::Tensor&)> make_result) const;

  const at::Tensor& model(const torch::jit::Stack& stack) const {
    return stack[first_ + static_cast<std::size_t>(large_.front().index)].toTensor();
  }

 private:
  struct Large {
    int index;
    bool is_read;
    bool is_written;
  };
  // Whether a large operand before shares the tensor's storage at another offset.
  bool meets_shifted(const torch::jit::Stack& stack, const at::Tensor& tensor,
                     const Place& place) const;
  void count(c10::StorageImpl* storage);
  c10::SmallVector<at::Tensor, 4> make_chunks(const torch::jit::Stack& stack,
                                              std::int64_t chunk_bytes) const;

  std::size_t first_ = 0;  // of the arguments on the stack
  int arguments_ = 0;
  int returned_argument_ = -1;  // the one that an in-place operator returns
  c10::SmallVector<Large, 4> large_;
  c10::SmallVector<c10::StorageImpl*, 4> storages_;
  c10::SmallVector<c10::StorageImpl*, 4> numbers_;
  std::int64_t elements_ = 0;
  std::int64_t bytes_ = 0;
};

}  // namespace plimsoll::detail
