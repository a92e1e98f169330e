// SPDX-License-Identifier: Apache-2.0
// Level 1: any LibTorch code, unchanged, inside a hard budget.
//
// Nouns: Session, Step, SessionReport.
//
//     plimsoll::Session session({.budget_bytes = plimsoll::mib(512)});
//     for (auto& batch : *loader) {
//       auto step = session.step();
//       optimizer.zero_grad();
//       auto loss = cross_entropy(model->forward(batch.data), batch.target);
//       loss.backward();
//       optimizer.step();
//     }
//
// Every storage that an operator of a step touches, parameters and optimizer state included, is
// taken over into an arena of exactly the budget. Storages that no running operator uses are moved
// to host memory when room is needed and come back before they are touched. The first step evicts
// what was used longest ago; from the second on the sequence of accesses is known and the moves
// are planned (plimsoll/plan/swap_plan.h).
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "plimsoll/base/bytes.h"

namespace plimsoll {

namespace device {
class FaultPlan;
}  // namespace device
namespace detail {
class SessionImpl;
}  // namespace detail

enum class EvictionOrder : std::uint8_t {
  kNextUse,            // by the known sequence of accesses, once there is one
  kLeastRecentlyUsed,  // always; for comparison
};

enum class Overlap : std::uint8_t {
  kAuto,  // on where copies have engines of their own or operators leave cores to them, off where
          // they would only take the operators' threads away
  kOff,   // copies are made when they are needed, by all operator threads together
  kOn,    // copies run ahead on copy queues
};

// A lock of the program around LibTorch that a thread may hold when it comes here: Python's.
// Threads never wait for a session's own lock while they hold this one, so that storages whose
// references are Python objects can be moved under the session's lock. Threads: all calls on any.
class OuterLock {
 public:
  OuterLock() = default;
  OuterLock(const OuterLock&) = delete;
  OuterLock& operator=(const OuterLock&) = delete;
  virtual ~OuterLock() = default;
  // Lets go where this thread holds it, and returns what take_back() wants; null where it does not.
  virtual void* let_go() noexcept = 0;
  virtual void take_back(void* state) noexcept = 0;
};

struct SessionOptions {
  // The hard limit, in bytes: storages in the arena (rounded up to 64 bytes each, to 512 on a
  // device), scratch of running operators, and pinned storages outside of it. Never exceeded.
  std::int64_t budget_bytes = 0;
  // Whose memory is held: the CPU's, or that of a device of a back end on PrivateUse1 (without an
  // index, of the current one). Other devices' tensors are left alone. A device has to have room
  // for the budget beside what is on it when the session begins.
  c10::Device device{c10::DeviceType::CPU};
  // What evicted storages may take of host memory, in bytes; beyond it they go to the spill
  // folder, if there is one.
  std::int64_t host_limit_bytes = std::numeric_limits<std::int64_t>::max();
  // A folder on a disk for what does not fit into the host limit; "" for none.
  std::string spill_folder{};
  EvictionOrder eviction_order = EvictionOrder::kNextUse;
  Overlap overlap = Overlap::kAuto;
  // Overwrites freed bytes, so that a stale pointer shows; a debug build always does. Costs memory
  // bandwidth.
  bool poison = false;
  // Makes data_ptr() of every storage the session holds throw outside of operators, so that no
  // raw pointer can go stale unnoticed. pin() lifts it for one tensor.
  bool strict_pointers = false;
  // Keeps every operator, eviction and fetch of the last step with its times, for events().
  bool record_events = false;
  // Outlives the session and every storage that it held; null where there is none.
  OuterLock* outer_lock = nullptr;
  // Makes chosen copies and file calls fail, for tests (plimsoll/device/fault_plan.h). Outlives the
  // session.
  device::FaultPlan* testing_faults = nullptr;
};

struct SessionReport {
  std::int64_t budget_bytes = 0;
  std::int64_t peak_bytes = 0;  // since the session began; never above the budget
  // Of these, what rounding up to the alignment took: at the peak, budget = what was asked for +
  // this + what was foreign then + free, to the byte.
  std::int64_t peak_waste_bytes = 0;
  std::string peak_op;
  // What is alive between steps: parameters, gradients kept, optimizer state, buffers.
  std::int64_t persistent_bytes = 0;
  // The largest operator's distinct bytes (operands, results, its own scratch, and pinned bytes):
  // no budget below it can work. 0 before the first step is over.
  std::int64_t lower_bound_bytes = 0;
  std::string pinned_by;           // that operator
  std::int64_t foreign_bytes = 0;  // pinned storages outside of the arena, counted in the budget
  // Bytes moved in the last step.
  std::int64_t offloaded_bytes = 0;
  std::int64_t prefetched_bytes = 0;
  std::int64_t slid_bytes = 0;  // inside the arena, to make room in one piece
  // What the plan for the last step's sequence moves per step; 0 where there is no plan.
  std::int64_t planned_bytes = 0;
  std::int64_t host_bytes = 0;  // what the host tier holds now
  std::int64_t file_bytes = 0;  // what the file tier holds now
  std::int64_t steps = 0;
  std::int64_t steps_on_sequence = 0;  // steps that followed a known sequence to their end
  std::int64_t known_sequences = 0;    // with other lifetimes counted apart
  std::int64_t plans_made = 0;         // steps whose moves were planned; each costs time once
  std::int64_t operators = 0;          // in the last step, views not counted
  // Set when a request did not fit: what the failing operator needs in all, at least.
  std::int64_t shortage_bytes = 0;
  std::string shortage_op;
};

// One thing that happened in the last step, for a timeline.
struct SessionEvent {
  enum class Kind : std::uint8_t { kOperator, kEvict, kFetch };
  Kind kind = Kind::kOperator;
  std::string name;
  std::int64_t begin_ns = 0;  // since the step began
  std::int64_t end_ns = 0;
  std::int64_t bytes = 0;
};

// The extent of one training (or evaluation) step. Ends when it goes out of scope; a step that
// ends by an exception teaches the session nothing. Made by Session::step() only.
class Step {
 public:
  Step(Step&& other) noexcept;
  Step& operator=(Step&&) = delete;
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;
  ~Step();
  // Ends it now, as an exception would. The destructor then does nothing.
  void abandon() noexcept;

 private:
  friend class Session;
  explicit Step(detail::SessionImpl* session);
  detail::SessionImpl* session_;
  int exceptions_;
};

// While it lives, this thread's operators are not seen: they run as stock, cost nothing extra, and
// must not touch tensors of the session. For measuring beside stock. Made by Session::pause() only.
class Pause {
 public:
  ~Pause();
  Pause(const Pause&) = delete;
  Pause& operator=(const Pause&) = delete;

 private:
  friend class Session;
  Pause();
};

// A hard budget over the LibTorch code of one thread (the autograd engine's threads included).
//
// Ownership: holds no tensor. Ending the session moves every storage it took over back to ordinary
// memory; tensors stay valid in any order of destruction. What a device has no room for stays in
// the arena, which then lives as long as it does; what has no room there either stays out of reach,
// and using it says so.
// Threads: made, used and ended on one thread; other threads' tensors are untouched. One session
// per process at a time: a second one is refused with InvalidArgument.
// Errors: out of budget is c10::OutOfMemoryError, from the operator that does not fit; every tensor
// keeps its value and the step may be tried again. Host or disk exhaustion is the same type.
// A step that is open already, a budget of 0, an unusable spill folder or a device that does not
// exist: InvalidArgument. A device whose memory sessions cannot hold, and another's allocator of a
// higher priority in LibTorch: Unsupported; no room for the arena: DeviceOutOfMemory. A call of the
// device that fails: DeviceError, from any operator. Streams: on a device operators run in the
// order the program gives them, whichever streams it uses: a stream that takes over waits for the
// one before. Storages move on streams of their own. Memory used by kernels of the program's own on
// another stream needs recordStream, before the next operator: it holds until the memory's end, and
// whenever it moves. Raw pointers: data_ptr() of a tensor the session holds is good until the next
// operator; pin() it to keep the pointer longer, or to write through it inside a step (between
// steps no pin is needed). Where a storage is evicted, data_ptr() throws a text that says so.
class Session {
 public:
  explicit Session(const SessionOptions& options);
  ~Session();
  Session(Session&&) = delete;
  Session& operator=(Session&&) = delete;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  [[nodiscard]] Step step();
  // Errors: InvalidArgument inside a step.
  [[nodiscard]] Pause pause();

  // Brings the tensor's storage into the arena and keeps it at one address until unpin() or the
  // end of the session. Its bytes count as pinned.
  void pin(const at::Tensor& tensor);
  void pin(const c10::Storage& storage);
  void unpin(const at::Tensor& tensor);
  void unpin(const c10::Storage& storage);
  // Says whether the session has taken the storage over (resident or not).
  bool holds(const c10::Storage& storage) const;

  // Runs code that cannot be seen (compiled, or with kernels of its own) as one operator: all of
  // `operands` are brought in and held, and count as written; what it allocates counts as its
  // scratch, and what it returns is taken over. Inside, operators of this thread are not seen.
  using Opaque = std::function<std::vector<at::Tensor>()>;
  std::vector<at::Tensor> run_opaque(const std::string& name,
                                     const std::vector<at::Tensor>& operands, const Opaque& body);

  SessionReport report() const;
  // The least bytes (out plus in) that any schedule of moves needs per step for the sequence of
  // the last step at this budget; 0 while no sequence is known. Cost: solves a linear program.
  std::int64_t moved_lower_bound_bytes() const;
  // The last step's sequence of accesses as JSON (plimsoll/plan/access_sequence.h), "" if none.
  std::string access_sequence_json() const;
  // With record_events: the last step's operators and moves, in order of their begin.
  std::vector<SessionEvent> events() const;
  void reset_peak();

  // In a child that fork() made, before anything else: operators of this thread are stock again.
  // Takes no lock. The child must neither use nor destroy the session (or its step) after it; what
  // was evicted stays out of its reach, and data_ptr() there says so.
  static void detach_after_fork() noexcept;

 private:
  std::unique_ptr<detail::SessionImpl> impl_;
};

// Tries the operator interposer on this LibTorch: captures an addition with its backward and checks
// what was seen. Returns "" when all is well, else what went wrong.
std::string interposer_self_test();

}  // namespace plimsoll
