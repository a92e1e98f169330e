// SPDX-License-Identifier: Apache-2.0
// The extension module plimsoll._native: sessions, the allocator and sizes for Python.
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "plimsoll/allocator.h"
#include "plimsoll/base/error.h"
#include "plimsoll/base/size.h"

#include "array_holds.h"
#include "session_core.h"

namespace plimsoll::python {
namespace {

namespace py = pybind11;

// Raises the class of plimsoll.errors that goes with an error, with its figures.
void raise(const char* type, const Error& error) {
  const py::object kind = py::module_::import("plimsoll.errors").attr(type);
  py::object value = kind(py::str(error.what()));
  if (const auto* budget = dynamic_cast<const InfeasibleBudget*>(&error)) {
    value.attr("budget_bytes") = budget->budget_bytes();
    value.attr("minimum_budget_bytes") = budget->minimum_budget_bytes();
    value.attr("pinned_by") = budget->pinned_by();
  }
  PyErr_SetObject(kind.ptr(), value.ptr());
}

void translate(std::exception_ptr pointer) {
  try {
    if (pointer) std::rethrow_exception(std::move(pointer));
  } catch (const Interrupted&) {
    PyErr_SetNone(PyExc_KeyboardInterrupt);
  } catch (const Error& error) {
    switch (error.code()) {
      case ErrorCode::kInvalidArgument:
      case ErrorCode::kInvalidFile:
        return raise("InvalidArgumentError", error);
      case ErrorCode::kInfeasibleBudget:
      case ErrorCode::kDeviceOutOfMemory:
      case ErrorCode::kHostOutOfMemory:
        return raise("BudgetExceededError", error);
      case ErrorCode::kDeviceError:
        return raise("SpillError", error);
      case ErrorCode::kUnsupported:
        return raise("UnsupportedError", error);
      default:
        return raise("InternalError", error);
    }
  } catch (const c10::OutOfMemoryError& error) {
    const py::object kind = py::module_::import("torch").attr("OutOfMemoryError");
    PyErr_SetString(kind.ptr(), error.what_without_backtrace());
  }
}

py::dict to_dict(const SessionReport& report) {
  py::dict fields;
  fields["budget_bytes"] = report.budget_bytes;
  fields["peak_bytes"] = report.peak_bytes;
  fields["peak_waste_bytes"] = report.peak_waste_bytes;
  fields["peak_op"] = report.peak_op;
  fields["persistent_bytes"] = report.persistent_bytes;
  fields["lower_bound_bytes"] = report.lower_bound_bytes;
  fields["pinned_by"] = report.pinned_by;
  fields["foreign_bytes"] = report.foreign_bytes;
  fields["offloaded_bytes"] = report.offloaded_bytes;
  fields["prefetched_bytes"] = report.prefetched_bytes;
  fields["slid_bytes"] = report.slid_bytes;
  fields["planned_bytes"] = report.planned_bytes;
  fields["host_bytes"] = report.host_bytes;
  fields["file_bytes"] = report.file_bytes;
  fields["steps"] = report.steps;
  fields["steps_on_sequence"] = report.steps_on_sequence;
  fields["known_sequences"] = report.known_sequences;
  fields["plans_made"] = report.plans_made;
  fields["operators"] = report.operators;
  fields["shortage_bytes"] = report.shortage_bytes;
  fields["shortage_op"] = report.shortage_op;
  return fields;
}

py::dict to_dict(const AllocatorStatistics& account) {
  py::dict fields;
  fields["limit_bytes"] = account.limit_bytes;
  fields["live_bytes"] = account.live_bytes;
  fields["live_blocks"] = account.live_blocks;
  fields["peak_bytes"] = account.peak_bytes;
  fields["peak_op"] = account.peak_op;
  fields["refused"] = account.refused;
  for (int i = 0; i < kAllocationKinds; ++i) {
    const auto& kind = account.kinds[static_cast<std::size_t>(i)];
    const std::string name(allocation_kind_name(static_cast<AllocationKind>(i)));
    fields[py::str(name + "_live_bytes")] = kind.live_bytes;
    fields[py::str(name + "_allocated_bytes")] = kind.allocated_bytes;
    fields[py::str(name + "_allocations")] = kind.allocations;
  }
  return fields;
}

py::list events(const SessionCore& core) {
  py::list all;
  for (const SessionEvent& event : core.session().events()) {
    const char* kind = event.kind == SessionEvent::Kind::kOperator ? "operator"
                       : event.kind == SessionEvent::Kind::kEvict  ? "evict"
                                                                   : "fetch";
    all.append(py::make_tuple(kind, event.name, event.begin_ns, event.end_ns, event.bytes));
  }
  return all;
}

void exit_step(StepContext& step, const py::object& type, const py::object& value,
               const py::object& traceback) {
  step.exit(type.is_none());
  if (!type.is_none()) py::module_::import("plimsoll.errors").attr("raise_as_ours")(value);
}

// Ends a session, also where Ctrl-C comes into its Python part, which may be run again.
void leave(const py::object& self) {
  auto& core = self.cast<SessionCore&>();
  try {
    self.attr("_leaving")();
  } catch (py::error_already_set&) {
    self.attr("_leaving")();
    core.end();
    throw;
  }
  core.end();
}

py::object enter_session(py::object self) {
  auto& core = self.cast<SessionCore&>();
  core.begin();
  try {
    self.attr("_entered")();
  } catch (...) {
    leave(self);
    throw;
  }
  return self;
}

void exit_session(const py::object& self, const py::object& type, const py::object& value,
                  const py::object& traceback) {
  self.cast<SessionCore&>().end_step(false);
  leave(self);
  if (!type.is_none()) py::module_::import("plimsoll.errors").attr("raise_as_ours")(value);
}

SessionOptions options(std::int64_t budget_bytes, std::optional<std::int64_t> host_limit_bytes,
                       const std::string& spill_folder, bool strict_pointers, bool record_events) {
  SessionOptions chosen;
  chosen.budget_bytes = budget_bytes;
  if (host_limit_bytes.has_value()) chosen.host_limit_bytes = *host_limit_bytes;
  chosen.spill_folder = spill_folder;
  chosen.strict_pointers = strict_pointers;
  chosen.record_events = record_events;
  return chosen;
}

// Runs `body` as one operator; its tensors are what it returns, in lists and tuples too.
py::object run_opaque(const SessionCore& core, const std::string& name,
                      const std::vector<at::Tensor>& operands, const py::object& body) {
  py::object result;
  const py::gil_scoped_release no_gil;
  core.session().run_opaque(name, operands, [&] {
    const py::gil_scoped_acquire gil;
    result = body();
    std::vector<at::Tensor> tensors;
    if (THPVariable_Check(result.ptr())) tensors.push_back(result.cast<at::Tensor>());
    if (py::isinstance<py::list>(result) || py::isinstance<py::tuple>(result)) {
      for (const py::handle& entry : result) {
        if (THPVariable_Check(entry.ptr())) tensors.push_back(entry.cast<at::Tensor>());
      }
    }
    return tensors;
  });
  return result;
}

void define_session(py::module_& module) {
  py::class_<SessionCore, std::shared_ptr<SessionCore>>(module, "SessionCore", py::dynamic_attr())
      .def(py::init([](std::int64_t budget_bytes, std::optional<std::int64_t> host_limit_bytes,
                       const std::string& spill_folder, bool strict_pointers, bool record_events) {
             return std::make_shared<SessionCore>(options(
                 budget_bytes, host_limit_bytes, spill_folder, strict_pointers, record_events));
           }),
           py::arg("budget_bytes"), py::arg("host_limit_bytes"), py::arg("spill_folder"),
           py::arg("strict_pointers"), py::arg("record_events"))
      .def("__enter__", &enter_session)
      .def("__exit__", &exit_session)
      .def_property_readonly("is_open", &SessionCore::is_open)
      .def_property_readonly("is_in_step", &SessionCore::is_in_step)
      .def("_step", [](std::shared_ptr<SessionCore> core) { return StepContext(std::move(core)); })
      .def("_pause",
           [](std::shared_ptr<SessionCore> core) {
             return std::make_unique<PauseContext>(std::move(core));
           })
      .def("_pin", &SessionCore::pin)
      .def("_unpin",
           [](SessionCore& core, const c10::Storage& storage) {
             core.unpin(storage.unsafeGetStorageImpl());
           })
      .def("_pin_for_good",
           [](SessionCore& core, const c10::Storage& storage) {
             core.pin(storage);
             storage.unsafeGetStorageImpl()->set_resizable(false);
           })
      .def("_holds", &SessionCore::holds)
      .def("_report", [](const SessionCore& core) { return to_dict(core.report()); })
      .def("_events", &events)
      .def("_moved_lower_bound_bytes",
           [](const SessionCore& core) {
             const Session& session = core.session();
             const py::gil_scoped_release no_gil;
             return session.moved_lower_bound_bytes();
           })
      .def("_run_opaque", &run_opaque)
      .def("_reset_peak", [](const SessionCore& core) { core.session().reset_peak(); })
      .def("_abandon_in_child", &SessionCore::abandon_in_child);
  py::class_<StepContext>(module, "StepContext")
      .def("__enter__", [](StepContext& step) { step.enter(); })
      .def("__exit__", &exit_step)
      .def("abandon", [](StepContext& step) { step.exit(false); });
  py::class_<PauseContext>(module, "PauseContext")
      .def("__enter__", [](PauseContext& pause) { pause.enter(); })
      .def("__exit__", [](PauseContext& pause, const py::object&, const py::object&,
                          const py::object&) { pause.exit(); });
  py::class_<ExportPin>(module, "ExportPin")
      .def(py::init<std::shared_ptr<SessionCore>, const c10::Storage&>())
      .def("release", &ExportPin::release);
  py::class_<ArrayHold>(module, "ArrayHold")
      .def(py::init<const c10::Storage&>())
      .def("release", &ArrayHold::release);
}

void define_allocator(py::module_& module) {
  module.def(
      "install_allocator",
      [](std::int64_t limit_bytes, bool attribute, bool plan) {
        install_allocator({.limit_bytes = limit_bytes, .attribute = attribute, .plan = plan});
      },
      py::arg("limit_bytes"), py::arg("attribute"), py::arg("plan"));
  module.def("allocator_statistics", [] { return to_dict(allocator_statistics()); });
  module.def("reset_allocator_statistics", [] { reset_allocator_statistics(); });
  module.def("mark_step", &mark_step);
  module.def(
      "record_memory_history", [](std::size_t most_events) { record_memory_history(most_events); },
      py::arg("most_events"));
  module.def("memory_snapshot", [] { return py::bytes(memory_snapshot()); });
}

}  // namespace
}  // namespace plimsoll::python

PYBIND11_MODULE(_native, module) {
  using namespace plimsoll;
  pybind11::register_local_exception_translator(&python::translate);
  python::define_session(module);
  python::define_allocator(module);
  module.def("parse_size", &parse_size, pybind11::arg("text"), pybind11::arg("flag"));
  module.def("format_size", &format_size, pybind11::arg("size_bytes"));
}
