// SPDX-License-Identifier: Apache-2.0
#include "operator_runner.h"

#include <atomic>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

#include "call_reader.h"
#include "device_memory.h"

namespace plimsoll::simgpu {
namespace {

// Every signature's plan, once known.
class KnownCalls {
 public:
  std::shared_ptr<const CallPlan> find(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto found = plans_.find(key);
    return found == plans_.end() ? nullptr : found->second;
  }
  void add(const std::string& key, const CallPlan& plan) {
    const std::lock_guard lock(mutex_);
    plans_[key] = std::make_shared<const CallPlan>(plan);
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<const CallPlan>> plans_;
};

KnownCalls& known_calls() {
  static auto* const calls = new KnownCalls();
  return *calls;
}

std::atomic<std::int64_t> g_asynchronous{0};
std::atomic<std::int64_t> g_first_seen{0};
std::atomic<std::int64_t> g_host_results{0};

RangeAccess write_of(const at::Storage& storage) {
  const auto begin = reinterpret_cast<std::uintptr_t>(storage.data());
  return {{begin, begin + storage.nbytes()}, true};
}

at::Tensor tensor_on(at::Storage storage, const TensorShape& shape) {
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(shape.dtype));
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(shape.sizes, shape.strides, shape.offset);
  if (shape.is_conjugate) impl->_set_conj(true);
  if (shape.is_negative) impl->_set_neg(true);
  return tensor;
}

// One call, from its arguments on the host to its results there.
class Call {
 public:
  Call(const c10::OperatorHandle& op, torch::jit::Stack* stack)
      : facts_(facts_of(op)),
        stack_(stack),
        arguments_(op.schema().arguments().size()),
        call_(read_call(op, facts_, *stack)),
        guard_(c10::Device(kType, call_.device)),
        stream_(current_stream(call_.device)) {}

  void run() {
    std::shared_ptr<const CallPlan> plan;
    const bool can_be_known = call_.has_key && !facts_.is_synchronous;
    if (can_be_known) plan = known_calls().find(call_.key);
    if (plan != nullptr) {
      ++g_asynchronous;
      issue(plan);
      return return_results(*plan, nullptr);
    }
    ++(facts_.is_synchronous ? g_host_results : g_first_seen);
    const auto outcome = run_and_wait();
    if (can_be_known && !outcome->plan.is_always_waited_for)
      known_calls().add(call_.key, outcome->plan);
    bring_over(outcome);
    return_results(outcome->plan, outcome.get());
  }

 private:
  OperationCost cost(const std::vector<ResultPlan>& results,
                     const std::vector<std::size_t>& new_bytes) const {
    OperationCost cost;
    cost.bytes = call_.bytes;
    for (const std::size_t bytes : new_bytes) cost.bytes += static_cast<std::int64_t>(bytes);
    cost.flops = flops_of(facts_, call_, results);
    return cost;
  }

  void allocate(const CallPlan& plan) {
    for (const std::size_t bytes : plan.new_bytes) {
      results_.push_back(new_storage(call_.device, bytes));
      call_.accesses.push_back(write_of(results_.back()));
    }
    // Given back when the call returns: what the stream gets next comes after the kernel.
    if (runtime().options().has_workspaces && plan.workspace_bytes > 0) {
      const auto bytes = static_cast<std::size_t>(plan.workspace_bytes);
      workspace_ = new_storage(call_.device, bytes);
      call_.accesses.push_back(write_of(workspace_));
    }
  }

  std::vector<StorageBytes> result_bytes() const {
    std::vector<StorageBytes> bytes;
    for (const at::Storage& storage : results_) {
      auto* at =
          storage.nbytes() == 0 ? nullptr : device_memory(call_.device).alias(storage.data());
      bytes.push_back({at, storage.nbytes()});
    }
    return bytes;
  }

  void resize_ahead(const CallPlan& plan) {
    for (const ResizePlan& resized : plan.resized) {
      const at::Tensor& tensor = call_.tensors[resized.operand];
      Operand& operand = call_.job->operands[resized.operand];
      grow_storage(tensor.storage(), resized.bytes);
      const TensorShape& shape = resized.shape;
      tensor.unsafeGetTensorImpl()->set_sizes_and_strides(shape.sizes, shape.strides, shape.offset);
      operand.shape = shape;
      call_.job->storages[static_cast<std::size_t>(operand.storage)] =
          device_bytes(tensor, facts_.name);
      call_.accesses.push_back({bytes_of(tensor), true});
    }
  }

  static void copy_results(const std::vector<at::Storage>& from,
                           const std::vector<StorageBytes>& to) {
    for (std::size_t i = 0; i < to.size(); ++i) {
      if (to[i].size > 0) std::memcpy(to[i].bytes, from[i].data(), to[i].size);
    }
  }

  void issue(const std::shared_ptr<const CallPlan>& plan) {
    resize_ahead(*plan);
    allocate(*plan);
    auto run = [job = call_.job, plan, targets = result_bytes(), &facts = facts_] {
      const CallOutcome outcome = job->run();
      TORCH_INTERNAL_ASSERT(
          outcome.plan.results == plan->results &&
              outcome.plan.list_lengths == plan->list_lengths &&
              outcome.plan.new_bytes == plan->new_bytes && outcome.plan.resized.empty(),
          "simgpu: ", facts.name, " returned other metadata than the same call did before");
      copy_results(outcome.new_storages, targets);
    };
    runtime().launch(
        stream_,
        {facts_.name, call_.accesses, cost(plan->results, plan->new_bytes), std::move(run), {}});
  }

  std::shared_ptr<CallOutcome> run_and_wait() {
    struct Waited {
      std::shared_ptr<CallOutcome> outcome;
      std::exception_ptr error;
    };
    const auto waited = std::make_shared<Waited>();
    auto run = [job = call_.job, waited] {
      try {
        waited->outcome = std::make_shared<CallOutcome>(job->run());
      } catch (...) {
        waited->error = std::current_exception();
      }
    };
    // In virtual time the operation is the copy of its results, where its size is known; but one
    // whose results the host waits for takes its time here.
    OperationCost so_far = cost({}, {});
    so_far.is_counted = facts_.is_synchronous;
    runtime().launch(stream_, {facts_.name, call_.accesses, so_far, std::move(run), {}});
    const auto done = std::make_shared<EventState>();
    runtime().record(done, stream_);
    // A GPU would not wait for what merely has not been seen before.
    if (facts_.is_synchronous) {
      runtime().synchronize(done);
    } else {
      runtime().look_at(done, true);
    }
    if (waited->error) std::rethrow_exception(waited->error);
    if (waited->outcome == nullptr) runtime().throw_on_error(call_.device);
    return waited->outcome;
  }

  // Gives operands the size the kernel gave its own, and copies what lies in host memory.
  void bring_over(const std::shared_ptr<CallOutcome>& outcome) {
    call_.accesses.clear();
    allocate(outcome->plan);
    std::vector<at::Storage> from = outcome->new_storages;
    std::vector<StorageBytes> to = result_bytes();
    resize_operands(*outcome, from, to);
    OperationCost whole = cost(outcome->plan.results, outcome->plan.new_bytes);
    whole.is_counted = !facts_.is_synchronous;
    auto run = [from = std::move(from), to = std::move(to)] { copy_results(from, to); };
    runtime().launch(stream_, {facts_.name, call_.accesses, whole, std::move(run), {}});
  }

  void resize_operands(const CallOutcome& outcome, std::vector<at::Storage>& from,
                       std::vector<StorageBytes>& to) {
    for (const ResizePlan& resized : outcome.plan.resized) {
      const Operand& operand = call_.job->operands[resized.operand];
      const at::Tensor& after = outcome.operands[resized.operand];
      const at::Tensor& tensor = call_.tensors[resized.operand];
      const TensorShape& shape = resized.shape;
      const auto& before = call_.job->storages[static_cast<std::size_t>(operand.storage)];
      const bool has_moved = after.storage().data() != before.bytes;
      if (has_moved) grow_storage(tensor.storage(), after.storage().nbytes());
      tensor.unsafeGetTensorImpl()->set_sizes_and_strides(shape.sizes, shape.strides, shape.offset);
      if (!has_moved || after.storage().nbytes() == 0) continue;
      const at::Storage& storage = tensor.storage();
      from.push_back(after.storage());
      to.push_back({device_memory(call_.device).alias(storage.data()), after.storage().nbytes()});
      call_.accesses.push_back(write_of(storage));
    }
  }

  at::Tensor result(const ResultPlan& plan) const {
    switch (plan.source) {
      case ResultPlan::Source::kUndefined:
        return {};
      case ResultPlan::Source::kOperand:
        return call_.tensors[static_cast<std::size_t>(plan.index)];
      case ResultPlan::Source::kNew:
        return tensor_on(results_[static_cast<std::size_t>(plan.index)], plan.shape);
      case ResultPlan::Source::kView:
        break;
    }
    for (std::size_t i = 0; i < call_.tensors.size(); ++i) {
      if (call_.job->operands[i].storage == plan.index) {
        return tensor_on(call_.tensors[i].storage(), plan.shape);
      }
    }
    TORCH_INTERNAL_ASSERT(false, "simgpu: a view of no operand");
  }

  void return_results(const CallPlan& plan, const CallOutcome* outcome) {
    torch::jit::Stack returned;
    std::size_t next = 0;
    for (std::size_t i = 0; i < plan.list_lengths.size(); ++i) {
      const int length = plan.list_lengths[i];
      if (length >= 0) {
        c10::List<at::Tensor> list;
        for (int k = 0; k < length; ++k) list.push_back(result(plan.results[next++]));
        returned.emplace_back(std::move(list));
        continue;
      }
      const ResultPlan& one = plan.results[next++];
      const bool is_value = outcome != nullptr && !outcome->values[i].isTensor();
      returned.emplace_back(is_value ? outcome->values[i] : c10::IValue(result(one)));
    }
    torch::jit::drop(*stack_, arguments_);
    for (c10::IValue& value : returned) stack_->push_back(std::move(value));
  }

  const OperatorFacts& facts_;
  torch::jit::Stack* stack_;
  std::size_t arguments_;
  ReadCall call_;
  c10::DeviceGuard guard_;
  c10::Stream stream_;
  std::vector<at::Storage> results_;
  at::Storage workspace_;
};

}  // namespace

void run_operator(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard unseen(c10::DispatchKey::Fake);
  const at::AutoDispatchBelowADInplaceOrView below;
  Call(op, stack).run();
}

at::Storage new_storage(c10::DeviceIndex device, std::size_t bytes) {
  const c10::DeviceGuard guard(c10::Device(kType, device));
  c10::Allocator* allocator = c10::GetAllocator(kType);
  return {c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                allocator->allocate(bytes), allocator, true)};
}

void grow_storage(const at::Storage& storage, std::size_t bytes) {
  if (bytes <= storage.nbytes()) return;
  const c10::DeviceIndex device = storage.device().index();
  const at::Storage larger = new_storage(device, bytes);
  const std::size_t kept = storage.nbytes();
  if (kept > 0) {
    const auto* from = storage.data();
    auto* to = larger.mutable_data();
    const auto address = [](const void* at) { return reinterpret_cast<std::uintptr_t>(at); };
    const RangeAccess accesses[] = {{{address(from), address(from) + kept}, false},
                                    {{address(to), address(to) + kept}, true}};
    OperationCost cost;
    cost.kind = TimedKind::kCopyOnDevice;
    cost.bytes = static_cast<std::int64_t>(kept);
    DeviceMemory& memory = device_memory(device);
    auto run = [to = memory.alias(to), from = memory.alias(from), kept] {
      std::memcpy(to, from, kept);
    };
    runtime().launch(current_stream(device), {"growing a storage", accesses, cost, run, {}});
  }
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(
      std::move(const_cast<c10::DataPtr&>(larger.data_ptr())));
  storage.unsafeGetStorageImpl()->set_nbytes(bytes);
}

CallCounts call_counts() { return {g_asynchronous, g_first_seen, g_host_results}; }

}  // namespace plimsoll::simgpu
