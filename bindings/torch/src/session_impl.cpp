// SPDX-License-Identifier: Apache-2.0
#include "session_impl.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include "plimsoll/base/error.h"

#include "chunked_operators.h"
#include "host_allocator.h"
#include "list_operators.h"
#include "tensor_storages.h"
#include "vector_math.h"

namespace plimsoll::detail {
namespace {

using Storages = c10::SmallVector<Arena::Touched, 8>;
using Results = c10::SmallVector<c10::StorageImpl*, 4>;

// What a slice of an operator over lists may take: so little that no slice sets the least budget
// where its entries are small, so much that cutting costs nothing.
constexpr std::int64_t kSlicesPerBudget = 16;
// What the chunks of a pointwise operator may take together, and how its hash tells it apart.
constexpr std::int64_t kChunksPerBudget = 4;
// Operators below this are not asked whether they can be cut: no budget is that small.
constexpr std::int64_t kLeastBoundBytes = 64 << 10;
constexpr std::uint64_t kChunkedHash = 0x6368756e6b;

// Views take what they view first.
bool is_of_parts(const OperatorInfo& info, const torch::jit::Stack& stack, const Place& place) {
  if (info.arguments == 0) return false;
  const c10::IValue& first = stack[stack.size() - static_cast<std::size_t>(info.arguments)];
  return first.isTensor() && has_parts(first.toTensor(), place);
}

Storages operands(const OperatorInfo& info, const torch::jit::Stack& stack, const Place& place) {
  Storages storages;
  const std::size_t first = stack.size() - static_cast<std::size_t>(info.arguments);
  for (int i = 0; i < info.arguments; ++i) {
    const bool writes = info.writes_argument(i);
    visit_storages(stack[first + static_cast<std::size_t>(i)], place,
                   [&](c10::StorageImpl* storage) { storages.emplace_back(storage, writes); });
  }
  return storages;
}

Results results_of(const OperatorInfo& info, const torch::jit::Stack& stack, const Place& place) {
  Results results;
  for (std::size_t i = stack.size() - static_cast<std::size_t>(info.returns); i < stack.size();
       ++i) {
    visit_storages(stack[i], place, [&](c10::StorageImpl* storage) { results.push_back(storage); });
  }
  return results;
}

// Whether PyTorch looks at a program (torch.compile) and computes nothing. What it takes for
// tensors then may come without its modes too.
bool is_traced() {
  using Modes = c10::impl::TorchDispatchModeTLS;
  using Key = c10::impl::TorchDispatchModeKey;
  return Modes::get_mode(Key::FAKE) || Modes::get_mode(Key::PROXY) ||
         Modes::get_mode(Key::FUNCTIONAL);
}

bool is_made_in_python(const c10::IValue& value) {
  const auto is_python_made = [](const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.key_set().has(c10::DispatchKey::Python)) return false;
    return !tensor.has_storage() || !tensor.storage().device().is_meta();
  };
  if (value.isTensor()) return is_python_made(value.toTensor());
  if (!value.isList()) return false;
  const auto list = value.toListRef();
  return std::any_of(list.begin(), list.end(), is_made_in_python);
}

// At least what the plain tensors among the arguments hold: each argument counts its storage.
std::int64_t most_operand_bytes(const OperatorInfo& info, const torch::jit::Stack& stack,
                                const Place& place) {
  std::int64_t bytes = 0;
  const std::size_t first = stack.size() - static_cast<std::size_t>(info.arguments);
  for (std::size_t i = first; i < stack.size(); ++i) {
    if (!stack[i].isTensor()) continue;
    const c10::StorageImpl* storage = storage_of(stack[i].toTensor(), place);
    if (storage != nullptr) bytes += static_cast<std::int64_t>(storage->nbytes());
  }
  return bytes;
}

// What a kernel that fails may have taken off the stack already: all arguments but plain tensors,
// which it only looks at. No reference to those is taken, see visit_storages.
class SavedArguments {
 public:
  SavedArguments(const OperatorInfo& info, const torch::jit::Stack& stack)
      : info_(info), first_(stack.size() - static_cast<std::size_t>(info.arguments)) {
    for (int i = 0; i < info.arguments; ++i) {
      if (!is_left_alone(i)) values_.push_back(stack[first_ + static_cast<std::size_t>(i)]);
    }
  }
  // False where the stack is not what a kernel leaves that failed.
  bool put_back(torch::jit::Stack& stack) const {
    if (stack.size() != first_ + static_cast<std::size_t>(info_.arguments)) return false;
    std::size_t next = 0;
    for (int i = 0; i < info_.arguments; ++i) {
      c10::IValue& value = stack[first_ + static_cast<std::size_t>(i)];
      if (!is_left_alone(i)) {
        value = values_[next++];
      } else if (!value.isTensor()) {
        return false;
      }
    }
    return true;
  }

 private:
  bool is_left_alone(int i) const { return i < 63 && (info_.plain_tensors >> i & 1) != 0; }

  const OperatorInfo& info_;
  const std::size_t first_;
  c10::SmallVector<c10::IValue, 8> values_;
};

// A tensor that looks at a copy of the source's whole storage as the source looks at it.
at::Tensor clone_with_storage(const at::Tensor& source) {
  at::Tensor bytes = at::empty({0}, source.options().dtype(at::kByte));
  bytes.set_(source.storage(), 0, {static_cast<std::int64_t>(source.storage().nbytes())}, {1});
  auto result = source.unsafeGetTensorImpl()->shallow_copy_and_detach(
      /*version_counter=*/0, /*allow_tensor_metadata_change=*/true);
  result->set_storage_keep_dtype(bytes.clone().storage());
  return at::Tensor(std::move(result));
}

}  // namespace

SessionImpl::SessionImpl(const SessionOptions& options) : options_(options) {
  resolve_vector_functions();
  put_allocator_in_front(options.device.type());
  Interposer::refuse_second();
  if (const std::string problem = interposer_self_test(); !problem.empty()) {
    throw Unsupported("the operator interposer does not work on this LibTorch: " + problem);
  }
  arena_ = std::make_shared<Arena>(options);
  place_ = arena_->place();
  interposer_ = std::make_unique<Interposer>(this);
}

SessionImpl::~SessionImpl() {
  interposer_.reset();
  arena_->retire();
}

void SessionImpl::begin_step() {
  if (is_in_step_) throw InvalidArgument("Session::step: a step is open already; end it first");
  arena_->begin_step();
  if (place_.is_host()) enroll_workers(arena_.get());
  is_in_step_ = true;
  // One thread, so that operators arrive in the same order in every step.
  had_engine_threads_ = c10::AutogradState::get_tls_state().get_multithreading_enabled();
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
}

void SessionImpl::end_step(bool is_complete) noexcept {
  is_in_step_ = false;
  c10::AutogradState::get_tls_state().set_multithreading_enabled(had_engine_threads_);
  try {
    arena_->end_step(is_complete);
  } catch (const std::exception&) {
    // Nothing was learnt; the next step is as a first one.
  }
}

void SessionImpl::on_operator(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                              torch::jit::Stack* stack) {
  // A tensor subclass or a dispatch mode takes the operator apart in Python: its parts are seen.
  if (keys.has(c10::DispatchKey::Python)) {
    const bool reads_bytes = infos_.of(op).kind != OperatorClass::kMetadata;
    if (kPythonShowsParts || is_traced() || !reads_bytes) {
      run_composite(op, keys, stack);
    } else {
      run_hidden(op, keys, stack);
    }
    return;
  }
  const OperatorInfo& info = infos_.of(op);
  if (info.is_collective) {
    throw Unsupported(info.name +
                      " inside of a session: collectives write after they have returned; pause the "
                      "session around them");
  }
  switch (info.kind) {
    case OperatorClass::kComposite:
      run_composite(op, keys, stack);
      return;
    case OperatorClass::kMetadata:
      // A view of a sparse tensor copies its indices.
      if (is_of_parts(info, *stack, place_)) {
        run_operator(info, op, keys, stack);
      } else {
        run_kernel(op, keys, stack);
      }
      return;
    case OperatorClass::kFactory:
    case OperatorClass::kCompute:
      run_operator(info, op, keys, stack);
      return;
  }
}

void SessionImpl::run_operator(const OperatorInfo& info, const c10::OperatorHandle& op,
                               c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (info.lists.can_slice()) {
    auto slices =
        ListSlices::cut(info.lists, *stack, place_, options_.budget_bytes / kSlicesPerBudget);
    if (slices.has_value()) {
      run_slices(info, *slices, op, keys, stack);
      return;
    }
  }
  if (info.can_chunk && run_chunks(info, op, keys, stack)) return;
  run_whole(info, info.hash, op, keys, stack);
}

bool SessionImpl::run_chunks(const OperatorInfo& info, const c10::OperatorHandle& op,
                             c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (!arena_->is_beyond(2 * most_operand_bytes(info, *stack, place_))) return false;
  const std::optional<ChunkedCall> call = ChunkedCall::of(info, *stack, place_);
  if (!call || !arena_->is_beyond(call->bytes())) return false;
  OperatorFrame frame;
  const std::int64_t begin_ns = begin_time();
  try {
    for (c10::StorageImpl* storage : call->storages()) {
      if (arena_->stream(storage, frame)) continue;
      arena_->abandon_operator(frame);
      return false;
    }
    Storages numbers;
    for (c10::StorageImpl* storage : call->numbers()) numbers.emplace_back(storage, false);
    arena_->begin_operator(info.hash + kChunkedHash, info.name, numbers, frame);
    const Unseen unseen;
    const ArenaScope scope(is_in_step_ ? arena_.get() : nullptr);
    call->run(
        *stack, options_.budget_bytes / kChunksPerBudget, *arena_,
        [&](torch::jit::Stack* chunk) { run_kernel(op, keys, chunk); },
        [&](const at::Tensor& part) { return empty_below(call->model(*stack), part, frame); });
  } catch (...) {
    arena_->abandon_operator(frame);
    throw;
  }
  finish(frame, info.name, begin_ns, {});
  return true;
}

at::Tensor SessionImpl::empty_below(const at::Tensor& shape, const at::Tensor& part,
                                    OperatorFrame& frame) {
  const HeapScope heap;
  if (!is_in_step_) return at::empty_strided(shape.sizes(), shape.strides(), part.options());
  at::Tensor result = at::empty({0}, part.options());
  c10::StorageImpl* storage = result.storage().unsafeGetStorageImpl();
  storage->set_nbytes(static_cast<std::size_t>(shape.numel()) * part.itemsize());
  result.unsafeGetTensorImpl()->set_sizes_and_strides(shape.sizes(), shape.strides());
  arena_->stream(storage, frame);
  return result;
}

void SessionImpl::run_slices(const OperatorInfo& info, ListSlices& slices,
                             const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                             torch::jit::Stack* stack) {
  // Before the first slice, so that a call which cannot end changes nothing.
  arena_->check_fits(info.name, slices.largest_bytes());
  for (std::size_t i = 0; i < slices.count(); ++i) {
    torch::jit::Stack slice = slices.arguments(i);
    run_whole(info, info.hash + 0x9e3779b97f4a7c15ULL * (i + 1), op, keys, &slice);
    slices.add_returns(std::move(slice));
  }
  torch::jit::drop(*stack, static_cast<std::size_t>(info.arguments));
  for (c10::IValue& value : slices.joined()) stack->push_back(std::move(value));
}

void SessionImpl::run_whole(const OperatorInfo& info, std::uint64_t hash,
                            const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                            torch::jit::Stack* stack) {
  OperatorFrame frame;
  const Storages storages =
      info.kind == OperatorClass::kFactory ? Storages() : operands(info, *stack, place_);
  // What can be cut sets no lower bound. Looked at only where it might.
  frame.can_be_cut = info.can_chunk && is_in_step_ &&
                     2 * most_operand_bytes(info, *stack, place_) >
                         std::max(arena_->largest_need_bytes(), kLeastBoundBytes) &&
                     ChunkedCall::of(info, *stack, place_).has_value();
  arena_->begin_operator(hash, info.name, storages, frame);
  const std::int64_t begin_ns = begin_time();
  std::optional<SavedArguments> saved;
  if (info.can_rerun && frame.is_recorded) saved.emplace(info, *stack);
  for (bool is_done = false; !is_done;) {
    try {
      const ArenaScope scope(is_in_step_ ? arena_.get() : nullptr);
      run_body(info, op, keys, stack);
      is_done = true;
    } catch (const c10::OutOfMemoryError&) {
      if (saved && saved->put_back(*stack) && arena_->prepare_rerun(frame)) continue;
      arena_->abandon_operator(frame);
      throw;
    } catch (...) {
      arena_->abandon_operator(frame);
      throw;
    }
  }
  finish(frame, info.name, begin_ns,
         frame.is_recorded ? results_of(info, *stack, place_) : Results());
}

void SessionImpl::run_body(const OperatorInfo& info, const c10::OperatorHandle& op,
                           c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  // LibTorch shares only memory whose owner it knows.
  if (info.is_lazy_clone) {
    const at::Tensor& source = stack->back().toTensor();
    c10::StorageImpl* storage = storage_of(source, place_);
    if (storage != nullptr && arena_->holds(storage)) {
      const Unseen unseen;
      stack->back() = clone_with_storage(source);
      return;
    }
  }
  run_kernel(op, keys, stack);
}

void SessionImpl::run_hidden(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                             torch::jit::Stack* stack) {
  const OperatorInfo& info = infos_.of(op);
  const auto first = stack->end() - info.arguments;
  if (std::any_of(first, stack->end(), is_made_in_python)) {
    throw Unsupported(
        info.name +
        " of a tensor subclass that takes operators apart in Python, inside of a session: "
        "LibTorch before 2.13 does not show which tensors that touches; take a later "
        "release, or pause the session");
  }
  // A dispatch mode over plain tensors: they are held while it does what it does, once.
  OperatorFrame frame;
  const Storages storages = operands(info, *stack, place_);
  arena_->begin_operator(info.hash, info.name, storages, frame);
  const std::int64_t begin_ns = begin_time();
  try {
    const ArenaScope scope(is_in_step_ ? arena_.get() : nullptr);
    run_kernel(op, keys, stack);
  } catch (...) {
    arena_->abandon_operator(frame);
    throw;
  }
  finish(frame, info.name, begin_ns,
         frame.is_recorded ? results_of(info, *stack, place_) : Results());
}

std::int64_t SessionImpl::begin_time() const {
  return options_.record_events ? arena_->now_ns() : 0;
}

void SessionImpl::finish(OperatorFrame& frame, const std::string& name, std::int64_t begin_ns,
                         const Results& results) {
  arena_->end_operator(frame, results);
  if (options_.record_events && is_in_step_) {
    arena_->add_event({SessionEvent::Kind::kOperator, name, begin_ns, arena_->now_ns(), 0});
  }
}

std::vector<at::Tensor> SessionImpl::run_opaque(const std::string& name,
                                                const std::vector<at::Tensor>& operands,
                                                const Session::Opaque& body) {
  OperatorFrame frame;
  Storages storages;
  for (const at::Tensor& tensor : operands) {
    visit_storages(tensor, place_,
                   [&](c10::StorageImpl* storage) { storages.emplace_back(storage, true); });
  }
  // Names live as long as the session: recordings point to them.
  const std::string& kept = *opaque_names_.insert(name).first;
  arena_->begin_operator(std::hash<std::string>()(kept), kept, storages, frame);
  const std::int64_t begin_ns = begin_time();
  std::vector<at::Tensor> returned;
  try {
    const ArenaScope scope(is_in_step_ ? arena_.get() : nullptr);
    const Unseen unseen;
    returned = body();
  } catch (...) {
    arena_->abandon_operator(frame);
    throw;
  }
  Results results;
  if (frame.is_recorded) {
    for (const at::Tensor& tensor : returned) {
      visit_storages(tensor, place_,
                     [&](c10::StorageImpl* storage) { results.push_back(storage); });
    }
  }
  finish(frame, kept, begin_ns, results);
  return returned;
}

}  // namespace plimsoll::detail

namespace plimsoll {

Step::Step(detail::SessionImpl* session)
    : session_(session), exceptions_(std::uncaught_exceptions()) {}

Step::Step(Step&& other) noexcept
    : session_(std::exchange(other.session_, nullptr)), exceptions_(other.exceptions_) {}

Step::~Step() {
  if (session_ != nullptr) session_->end_step(std::uncaught_exceptions() == exceptions_);
}

void Step::abandon() noexcept {
  if (session_ != nullptr) std::exchange(session_, nullptr)->end_step(false);
}

Session::Session(const SessionOptions& options)
    : impl_(std::make_unique<detail::SessionImpl>(options)) {}

Session::~Session() = default;

Step Session::step() {
  impl_->begin_step();
  return Step(impl_.get());
}

Pause::Pause() { detail::Interposer::see_this_thread(false); }

Pause::~Pause() { detail::Interposer::see_this_thread(true); }

Pause Session::pause() {
  if (impl_->is_in_step()) throw InvalidArgument("Session::pause: a step is open; end it first");
  return Pause();
}

void Session::pin(const at::Tensor& tensor) {
  if (auto* storage = detail::storage_of(tensor, impl_->place())) impl_->arena().pin(storage);
}

void Session::unpin(const at::Tensor& tensor) {
  if (auto* storage = detail::storage_of(tensor, impl_->place())) impl_->arena().unpin(storage);
}

void Session::unpin(const c10::Storage& storage) {
  if (storage) impl_->arena().unpin(storage.unsafeGetStorageImpl());
}

void Session::pin(const c10::Storage& storage) {
  if (storage) impl_->arena().pin(storage.unsafeGetStorageImpl());
}

bool Session::holds(const c10::Storage& storage) const {
  return storage && impl_->arena().holds(storage.unsafeGetStorageImpl());
}

void Session::detach_after_fork() noexcept { detail::Interposer::detach_after_fork(); }

std::vector<at::Tensor> Session::run_opaque(const std::string& name,
                                            const std::vector<at::Tensor>& operands,
                                            const Opaque& body) {
  return impl_->run_opaque(name, operands, body);
}

SessionReport Session::report() const { return impl_->arena().report(); }

void Session::reset_peak() { impl_->arena().reset_peak(); }

std::vector<SessionEvent> Session::events() const { return impl_->arena().take_events(); }

}  // namespace plimsoll
