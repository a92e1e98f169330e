// SPDX-License-Identifier: Apache-2.0
#include "call_reader.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include <ATen/core/Generator.h>
#include <ATen/ops/clone.h>
#include <c10/core/DefaultDtype.h>
#include <c10/util/Exception.h>

#include "device_generator.h"
#include "device_memory.h"

namespace plimsoll::simgpu {
namespace {

class KeyWriter {
 public:
  explicit KeyWriter(std::string& out) : out_(out) {}
  template <typename T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    out_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void put_text(std::string_view text) {
    put(text.size());
    out_.append(text);
  }
  void put_shape(const TensorShape& shape) {
    put(shape.sizes.size());
    for (const std::int64_t size : shape.sizes) put(size);
    for (const std::int64_t stride : shape.strides) put(stride);
    put(shape.offset);
    put(shape.dtype);
    put(shape.is_conjugate);
    put(shape.is_negative);
  }

 private:
  std::string& out_;
};

class Reader {
 public:
  Reader(const c10::OperatorHandle& op, const OperatorFacts& facts)
      : facts_(facts), key_(call_.key) {
    call_.job = std::make_shared<KernelJob>(op);
    key_.put(&facts);
    key_.put(c10::get_default_dtype_as_scalartype());
  }

  ReadCall read(c10::ArrayRef<c10::IValue> arguments) {
    for (std::size_t i = 0; i < arguments.size(); ++i) read_argument(i, arguments[i]);
    if (call_.device < 0) call_.device = current_device();
    take_random_numbers();
    return std::move(call_);
  }

 private:
  void read_argument(std::size_t index, const c10::IValue& value) {
    KernelJob& job = *call_.job;
    job.kinds.push_back(ArgumentKind::kValue);
    job.lengths.push_back(0);
    job.values.emplace_back();
    if (static_cast<int>(index) == facts_.generator_argument) {
      generator_ = value;
    } else if (value.isTensor()) {
      job.kinds.back() = ArgumentKind::kTensor;
      read_tensor(index, -1, value.toTensor());
    } else if (value.isTensorList()) {
      job.kinds.back() = ArgumentKind::kTensorList;
      read_list(index, value.toTensorList());
    } else if (value.isOptionalTensorList()) {
      job.kinds.back() = ArgumentKind::kOptionalTensorList;
      read_list(index, value.toOptionalTensorList());
    } else if (value.isDevice()) {
      read_device(value.toDevice());
      job.values.back() = c10::Device(c10::kCPU);
    } else {
      job.values.back() = value;
      put_value(value);
    }
  }

  static at::Tensor as_tensor(const at::Tensor& tensor) { return tensor; }
  static at::Tensor as_tensor(const std::optional<at::Tensor>& tensor) {
    return tensor.value_or(at::Tensor());
  }

  template <typename List>
  void read_list(std::size_t index, const List& list) {
    call_.job->lengths.back() = list.size();
    key_.put(list.size());
    for (std::size_t i = 0; i < list.size(); ++i) {
      read_tensor(index, static_cast<int>(i), as_tensor(list.get(i)));
    }
  }

  void read_device(const c10::Device& device) {
    if (device.type() != kType) return;
    set_device(device.has_index() ? device.index() : current_device());
  }

  void set_device(c10::DeviceIndex device) {
    TORCH_CHECK(call_.device < 0 || call_.device == device,
                "Expected all tensors to be on the same device, but found at least two devices, "
                "sim:",
                static_cast<int>(call_.device), " and sim:", static_cast<int>(device), "! (",
                facts_.name, ")");
    call_.device = device;
  }

  void read_tensor(std::size_t index, int element, const at::Tensor& tensor) {
    Operand operand;
    operand.argument = index;
    operand.element = element;
    operand.is_defined = tensor.defined();
    key_.put(operand.is_defined);
    if (operand.is_defined) {
      TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == c10::kStrided && tensor.has_storage(),
                                  "simgpu: ", facts_.name, " on a tensor of layout ",
                                  tensor.layout(), ": the test device has strided tensors only");
      operand.is_wrapped_number = tensor.unsafeGetTensorImpl()->is_wrapped_number();
      operand.shape = shape_of(tensor);
      key_.put(operand.is_wrapped_number);
      key_.put_shape(operand.shape);
      if (tensor.device().type() == kType) {
        read_device_tensor(operand, tensor);
      } else {
        read_host_tensor(operand, tensor);
      }
    }
    call_.job->operands.push_back(std::move(operand));
    call_.tensors.push_back(tensor);
  }

  void read_host_tensor(Operand& operand, const at::Tensor& tensor) {
    const bool may_be_host =
        tensor.dim() == 0 || facts_.takes_host_tensors ||
        call_.job->kinds[operand.argument] == ArgumentKind::kOptionalTensorList;
    TORCH_CHECK(tensor.is_cpu() && may_be_host && !facts_.writes[operand.argument],
                "Expected all tensors to be on the same device, but found at least two devices, "
                "sim and ",
                tensor.device(), "! (", facts_.name, ", argument ", operand.argument, ")");
    // Read when the operator is issued, as CUDA does.
    operand.host = tensor.clone();
    if (operand.is_wrapped_number) operand.host.unsafeGetTensorImpl()->set_wrapped_number(true);
    key_.put(-1);
  }

  void read_device_tensor(Operand& operand, const at::Tensor& tensor) {
    set_device(tensor.device().index());
    const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
    const auto known = std::find(storages_.begin(), storages_.end(), storage);
    operand.storage = static_cast<int>(known - storages_.begin());
    key_.put(operand.storage);
    if (known == storages_.end()) add_storage(operand, tensor);
    const ByteRange range = bytes_of(tensor);
    if (range.begin == range.end) return;
    call_.bytes += static_cast<std::int64_t>(range.end - range.begin);
    call_.accesses.push_back({range, facts_.writes[operand.argument]});
  }

  void add_storage(const Operand& operand, const at::Tensor& tensor) {
    const auto* storage = tensor.storage().unsafeGetStorageImpl();
    storages_.push_back(storage);
    key_.put(tensor.storage().nbytes());
    call_.job->storages.push_back(
        device_bytes(tensor, facts_.name + ", argument " + std::to_string(operand.argument)));
  }

  void put_value(const c10::IValue& value) {
    key_.put(value.isNone());
    if (value.isDouble()) {
      if (!facts_.ignores_doubles) key_.put(value.toDouble());
    } else if (value.isInt()) {
      key_.put(value.toInt());
    } else if (value.isBool()) {
      key_.put(value.toBool());
    } else if (value.isString()) {
      key_.put_text(value.toStringRef());
    } else if (value.isIntList()) {
      const auto list = value.toIntVector();
      key_.put(list.size());
      for (const std::int64_t item : list) key_.put(item);
    } else if (value.isDoubleList()) {
      const auto list = value.toDoubleVector();
      key_.put(list.size());
      for (const double item : list) key_.put(item);
    } else if (value.isBoolList()) {
      const auto list = value.toBoolList();
      key_.put(list.size());
      for (const bool item : list) key_.put(item);
    } else if (value.isComplexDouble()) {
      key_.put(value.toComplexDouble());
    } else if (!value.isNone()) {
      call_.has_key = false;
    }
  }

  void take_random_numbers() {
    if (facts_.generator_argument < 0) return;
    at::Generator generator = generator_.isGenerator() ? generator_.toGenerator() : at::Generator();
    if (!generator.defined()) generator = default_generator(call_.device);
    TORCH_CHECK(generator.device().type() == kType, "Expected a '", c10::Device(kType),
                "' device type for generator but found '", generator.device(), "'");
    const std::lock_guard lock(generator.mutex());
    call_.job->values[static_cast<std::size_t>(facts_.generator_argument)] =
        generator.get<DeviceGenerator>()->draw();
  }

  const OperatorFacts& facts_;
  ReadCall call_;
  KeyWriter key_;
  c10::IValue generator_;
  std::vector<const c10::StorageImpl*> storages_;
};

double numel(const TensorShape& shape) {
  double elements = 1;
  for (const std::int64_t size : shape.sizes) elements *= static_cast<double>(size);
  return elements;
}

}  // namespace

StorageBytes device_bytes(const at::Tensor& tensor, const std::string& user) {
  const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  const auto* begin = static_cast<const std::byte*>(storage->data_ptr().get());
  const std::size_t size = storage->nbytes();
  if (begin == nullptr) {
    TORCH_CHECK(tensor.numel() == 0, "simgpu: ", user,
                ": a kernel was launched on a tensor whose storage has no memory");
    return {nullptr, 0};
  }
  DeviceMemory& memory = device_memory(tensor.device().index());
  TORCH_CHECK(memory.contains(begin) && memory.is_live(begin, size), "simgpu: ", user, ": ", size,
              " bytes at ", static_cast<const void*>(begin), " are not allocated on ",
              tensor.device());
  return {memory.alias(begin), size};
}

ByteRange bytes_of(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return {};
  std::int64_t last = 0;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  const auto* storage = tensor.storage().unsafeGetStorageImpl();
  const auto begin = reinterpret_cast<std::uintptr_t>(storage->data_ptr().get());
  const auto item = static_cast<std::uintptr_t>(tensor.itemsize());
  const auto offset = static_cast<std::uintptr_t>(tensor.storage_offset());
  return {begin + offset * item, begin + (offset + static_cast<std::uintptr_t>(last) + 1) * item};
}

double flops_of(const OperatorFacts& facts, const ReadCall& call,
                const std::vector<ResultPlan>& results) {
  const std::string_view name = facts.name;
  const auto& operands = call.job->operands;
  const auto shape = [&](std::size_t i) -> const TensorShape& { return operands[i].shape; };
  if (name == "aten::convolution" && !results.empty() && operands.size() >= 2) {
    const double out_channels = static_cast<double>(shape(1).sizes[0]);
    return 2 * numel(results[0].shape) * numel(shape(1)) / out_channels;
  }
  if (name == "aten::convolution_backward" && operands.size() >= 3) {
    const double out_channels = static_cast<double>(shape(2).sizes[0]);
    return 4 * numel(shape(0)) * numel(shape(2)) / out_channels;
  }
  const bool is_product = name.starts_with("aten::mm") || name.starts_with("aten::bmm");
  const bool is_sum_of_products =
      name.starts_with("aten::addmm") || name.starts_with("aten::baddbmm");
  const std::size_t left = is_sum_of_products ? 1 : 0;
  if ((is_product || is_sum_of_products) && operands.size() >= left + 2) {
    return 2 * numel(shape(left)) * static_cast<double>(shape(left + 1).sizes.back());
  }
  return 0;
}

ReadCall read_call(const c10::OperatorHandle& op, const OperatorFacts& facts,
                   const torch::jit::Stack& stack) {
  const std::size_t count = op.schema().arguments().size();
  return Reader(op, facts).read(
      c10::ArrayRef<c10::IValue>(stack).slice(stack.size() - count, count));
}

}  // namespace plimsoll::simgpu
