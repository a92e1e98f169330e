// SPDX-License-Identifier: Apache-2.0
// A session: the interposer on one side, the arena on the other.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include <c10/core/AutogradState.h>

#include "arena.h"
#include "interposer.h"
#include "list_operators.h"
#include "operator_info.h"

namespace plimsoll::detail {

class SessionImpl final : public OperatorListener {
 public:
  explicit SessionImpl(const SessionOptions& options);
  ~SessionImpl() override;

  void begin_step();
  void end_step(bool is_complete) noexcept;
  Arena& arena() { return *arena_; }
  const Arena& arena() const { return *arena_; }
  bool is_in_step() const { return is_in_step_; }
  const Place& place() const { return place_; }

  std::vector<at::Tensor> run_opaque(const std::string& name,
                                     const std::vector<at::Tensor>& operands,
                                     const Session::Opaque& body);

  void on_operator(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                   torch::jit::Stack* stack) override;

 private:
  void run_operator(const OperatorInfo& info, const c10::OperatorHandle& op,
                    c10::DispatchKeySet keys, torch::jit::Stack* stack);
  // Runs a call that does not fit in chunks; false where it fits, or cannot be cut.
  bool run_chunks(const OperatorInfo& info, const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack);
  // A tensor of `shape`'s sizes and `part`'s type. In a step its bytes, undefined, start below the
  // arena and the frame holds it; else it is on the heap.
  at::Tensor empty_below(const at::Tensor& shape, const at::Tensor& part, OperatorFrame& frame);
  void run_slices(const OperatorInfo& info, ListSlices& slices, const c10::OperatorHandle& op,
                  c10::DispatchKeySet keys, torch::jit::Stack* stack);
  // Runs an operator that is taken apart in Python where that is not seen.
  void run_hidden(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack);
  // The kernel, or what stands for it where memory can move.
  void run_body(const OperatorInfo& info, const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                torch::jit::Stack* stack);
  std::int64_t begin_time() const;
  void finish(OperatorFrame& frame, const std::string& name, std::int64_t begin_ns,
              const c10::SmallVector<c10::StorageImpl*, 4>& results);
  void run_whole(const OperatorInfo& info, std::uint64_t hash, const c10::OperatorHandle& op,
                 c10::DispatchKeySet keys, torch::jit::Stack* stack);

  const SessionOptions options_;
  std::shared_ptr<Arena> arena_;
  Place place_{c10::Device(c10::DeviceType::CPU), 1};
  OperatorInfos infos_;
  std::unordered_set<std::string> opaque_names_;
  bool is_in_step_ = false;
  bool had_engine_threads_ = true;
  std::unique_ptr<Interposer> interposer_;
};

}  // namespace plimsoll::detail
