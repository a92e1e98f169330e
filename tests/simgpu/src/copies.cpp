// SPDX-License-Identifier: Apache-2.0
#include "copies.h"

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

#include "call_reader.h"
#include "device_memory.h"
#include "operator_runner.h"
#include "pinned_memory.h"

namespace plimsoll::simgpu {
namespace {

constexpr std::size_t kLargeBytes = std::size_t{16} << 10;

const c10::OperatorHandle& copy_operator() {
  static const c10::OperatorHandle handle =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  return handle;
}

bool is_on_device(const at::Tensor& tensor) { return tensor.device().type() == kType; }

bool is_pinned(const at::Tensor& tensor) {
  return pinned_memory().contains(tensor.storage().unsafeGetStorageImpl()->data_ptr().get());
}

// One side of a copy, as the job sees it.
class CopyJob {
 public:
  CopyJob(const at::Tensor& source, const at::Tensor& target)
      : job_(std::make_shared<KernelJob>(copy_operator())) {
    job_->kinds = {ArgumentKind::kTensor, ArgumentKind::kTensor, ArgumentKind::kValue};
    job_->lengths = {0, 0, 0};
    job_->values = {c10::IValue(), c10::IValue(), c10::IValue(false)};
    add(target, 0);
    add(source, 1);
    bytes_ = source.nbytes();
    is_plain_ = source.scalar_type() == target.scalar_type() && source.is_contiguous() &&
                target.is_contiguous() && source.sizes() == target.sizes() &&
                source.is_conj() == target.is_conj() && source.is_neg() == target.is_neg();
  }

  const std::vector<RangeAccess>& accesses() const { return accesses_; }
  std::int64_t bytes() const { return static_cast<std::int64_t>(bytes_); }

  std::function<void()> as_function() const {
    if (!is_plain_ || bytes_ < kLargeBytes || job_->operands[1].storage < 0) {
      return [job = job_] { job->run(); };
    }
    // In two halves, so that what reads too early or writes too soon meets a torn copy.
    auto* to = at(0);
    const auto* from = at(1);
    return [to, from, half = bytes_ / 2, bytes = bytes_] {
      std::memmove(to, from, half);
      JobQueue::delay_this_job();
      std::memmove(to + half, from + half, bytes - half);
    };
  }

 private:
  void add(const at::Tensor& tensor, std::size_t argument) {
    Operand operand;
    operand.argument = argument;
    operand.is_defined = true;
    operand.is_wrapped_number = tensor.unsafeGetTensorImpl()->is_wrapped_number();
    operand.shape = shape_of(tensor);
    const bool is_device = is_on_device(tensor);
    const bool may_be_late = is_device || argument == 0 || is_pinned(tensor);
    if (!may_be_late) {
      operand.host = tensor.clone();
    } else {
      operand.storage = static_cast<int>(job_->storages.size());
      job_->storages.push_back(is_device ? device_bytes(tensor, "a copy") : host_bytes(tensor));
      if (is_device || is_pinned(tensor)) accesses_.push_back({bytes_of(tensor), argument == 0});
    }
    job_->operands.push_back(std::move(operand));
  }

  static StorageBytes host_bytes(const at::Tensor& tensor) {
    const auto* storage = tensor.storage().unsafeGetStorageImpl();
    return {static_cast<std::byte*>(const_cast<void*>(storage->data_ptr().get())),
            storage->nbytes()};
  }

  std::byte* at(std::size_t argument) const {
    const Operand& operand = job_->operands[argument];
    const StorageBytes& storage = job_->storages[static_cast<std::size_t>(operand.storage)];
    return storage.bytes +
           operand.shape.offset * static_cast<std::int64_t>(c10::elementSize(operand.shape.dtype));
  }

  std::shared_ptr<KernelJob> job_;
  std::vector<RangeAccess> accesses_;
  std::size_t bytes_ = 0;
  bool is_plain_ = false;
};

void launch(const CopyJob& job, const c10::Stream& stream, std::string_view name, TimedKind kind) {
  OperationCost cost;
  cost.kind = kind;
  cost.bytes = job.bytes();
  runtime().launch(stream, {name, job.accesses(), cost, job.as_function(), {}});
}

void guard_pinned(const at::Tensor& tensor, const c10::Stream& stream) {
  const c10::DataPtr& pointer = tensor.storage().unsafeGetStorageImpl()->data_ptr();
  pinned_memory().record(const_cast<void*>(pointer.get()), pointer.get_context(), stream);
}

// What a copy will write on the host is nobody's to read until the host has waited: poison shows
// who does. Only where nothing else can still be using the bytes.
void poison_target(const at::Tensor& target) {
  if (!runtime().options().poisons || !target.is_contiguous()) return;
  const ByteRange range = bytes_of(target);
  const bool is_free = runtime().with_checker(
      [&](const RaceChecker& checker) { return checker.is_known_to_host(range); });
  if (is_free) std::memset(reinterpret_cast<void*>(range.begin), 0xFF, range.end - range.begin);
}

void copy_with_host(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  const bool is_to_device = is_on_device(target);
  const at::Tensor& ours = is_to_device ? target : source;
  const at::Tensor& theirs = is_to_device ? source : target;
  TORCH_CHECK(theirs.is_cpu(), "simgpu: no copies between ", ours.device(), " and ",
              theirs.device());
  const c10::Stream stream = current_stream(ours.device().index());
  const bool has_pinned = is_pinned(theirs);
  if (has_pinned && !is_to_device && non_blocking) poison_target(theirs);
  launch(CopyJob(source, target), stream, is_to_device ? "copy to the device" : "copy to the host",
         is_to_device ? TimedKind::kCopyToDevice : TimedKind::kCopyToHost);
  const bool is_staged = is_to_device && !has_pinned;
  if (non_blocking && (has_pinned || is_staged)) {
    if (has_pinned) guard_pinned(theirs, stream);
    return;
  }
  runtime().synchronize(stream);
}

void order(const c10::Stream& first, const c10::Stream& second) {
  const auto event = std::make_shared<EventState>();
  runtime().record(event, first);
  runtime().block(event, second);
}

void copy_between_devices(const at::Tensor& source, const at::Tensor& target) {
  const c10::Stream from = current_stream(source.device().index());
  const c10::Stream to = current_stream(target.device().index());
  order(to, from);
  launch(CopyJob(source, target), from, "copy between devices", TimedKind::kCopyToDevice);
  order(from, to);
}

}  // namespace

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  const c10::impl::ExcludeDispatchKeyGuard unseen(c10::DispatchKey::Fake);
  const at::AutoDispatchBelowADInplaceOrView below;
  if (target.numel() == 0) return target;
  const bool is_from_device = is_on_device(source);
  if (!is_from_device || !is_on_device(target)) {
    copy_with_host(source, target, non_blocking);
  } else if (source.device() != target.device()) {
    copy_between_devices(source, target);
  } else {
    torch::jit::Stack stack{target, source, false};
    run_operator(copy_operator(), {}, &stack);
  }
  return target;
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target) {
  target.resize_(source.sizes());
  return copy_from(source, target, false);
}

c10::Scalar read_scalar(const at::Tensor& tensor) {
  const c10::impl::ExcludeDispatchKeyGuard unseen(c10::DispatchKey::Fake);
  const at::AutoDispatchBelowADInplaceOrView below;
  at::Tensor host = at::empty(tensor.sizes(), tensor.options().device(at::kCPU));
  copy_from(tensor, host, false);
  return host.item();
}

}  // namespace plimsoll::simgpu
