// SPDX-License-Identifier: Apache-2.0
// Pointwise operators on tensors that do not fit, a chunk of elements at a time.
//
// Noun: ChunkedCall.
//
//     host   [ p . . . . . . ]  [ m . . . . . . ]  [ v . . . . . . ]      addcdiv_(p, m, v)
//               |  copied in       |                  |
//     arena    [ chunk ]          [ chunk ]          [ chunk ]   the kernel runs on these
//               |  copied back
//
// Only operators whose every element is rounded exactly, so that the cut cannot show in the bits:
// the arithmetic of optimizers. Transcendental ones round differently in vector and scalar code,
// where the cut falls decides which, and they run whole.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

namespace plimsoll::detail {

struct OperatorInfo;

// Says whether an operator of this name and schema may be run in chunks.
bool is_exactly_rounded(const c10::FunctionSchema& schema);

// One call that could run in chunks: its large tensors have one shape and one dense layout. Holds
// references to nothing: the stack has to stay as it is.
class ChunkedCall {
 public:
  static std::optional<ChunkedCall> of(const OperatorInfo& info, const torch::jit::Stack& stack);

  // Distinct storages of the large operands, and a result where the operator makes one.
  std::int64_t bytes() const { return bytes_; }
  const c10::SmallVectorImpl<c10::StorageImpl*>& storages() const { return storages_; }
  // The storages of the other tensors, which are single numbers.
  const c10::SmallVectorImpl<c10::StorageImpl*>& numbers() const { return numbers_; }

  // Runs the kernel on chunks that take about `chunk_bytes` together, allocated by whatever the
  // caller's thread allocates from, and replaces the arguments on the stack by the result.
  // `make_result` allocates the whole result from a chunk of it. The large operands' bytes have to
  // be in their place, at any address. Errors: those of the kernel, after which what in-place
  // chunks have written stays written.
  template <typename RunKernel, typename MakeResult>
  void run(torch::jit::Stack& stack, std::int64_t chunk_bytes, const RunKernel& run_kernel,
           const MakeResult& make_result) const;

  const at::Tensor& model(const torch::jit::Stack& stack) const {
    return stack[first_ + static_cast<std::size_t>(large_.front().index)].toTensor();
  }

 private:
  struct Large {
    int index;
    bool is_written;
  };
  static void copy_elements(const at::Tensor& whole, std::int64_t begin, const at::Tensor& chunk,
                            std::int64_t count, bool is_into_chunk);
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

template <typename RunKernel, typename MakeResult>
void ChunkedCall::run(torch::jit::Stack& stack, std::int64_t chunk_bytes,
                      const RunKernel& run_kernel, const MakeResult& make_result) const {
  const auto argument = [&](int i) -> c10::IValue& {
    return stack[first_ + static_cast<std::size_t>(i)];
  };
  const c10::SmallVector<at::Tensor, 4> chunks = make_chunks(stack, chunk_bytes);
  at::Tensor result;
  const std::int64_t chunk_elements = chunks.front().numel();
  for (std::int64_t begin = 0; begin < elements_; begin += chunk_elements) {
    const std::int64_t count = std::min(chunk_elements, elements_ - begin);
    torch::jit::Stack call(stack.begin() + static_cast<std::ptrdiff_t>(first_), stack.end());
    for (std::size_t k = 0; k < large_.size(); ++k) {
      copy_elements(argument(large_[k].index).toTensor(), begin, chunks[k], count, true);
      call[static_cast<std::size_t>(large_[k].index)] = chunks[k].narrow(0, 0, count);
    }
    run_kernel(&call);
    for (std::size_t k = 0; k < large_.size(); ++k) {
      if (!large_[k].is_written) continue;
      copy_elements(argument(large_[k].index).toTensor(), begin, chunks[k], count, false);
    }
    if (returned_argument_ >= 0) continue;
    const at::Tensor& part = call.back().toTensor();
    if (!result.defined()) result = make_result(part);
    copy_elements(result, begin, part, count, false);
  }
  c10::IValue returned =
      returned_argument_ >= 0 ? argument(returned_argument_) : c10::IValue(std::move(result));
  torch::jit::drop(stack, static_cast<std::size_t>(arguments_));
  stack.push_back(std::move(returned));
}

}  // namespace plimsoll::detail
