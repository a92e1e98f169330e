// SPDX-License-Identifier: Apache-2.0
#include "session_core.h"

#include <utility>

#include "plimsoll/base/error.h"

namespace plimsoll::python {

namespace py = pybind11;
namespace {

class InterpreterLock final : public OuterLock {
 public:
  void* let_go() noexcept override {
    if (Py_IsInitialized() == 0 || PyGILState_Check() == 0) return nullptr;
    return PyEval_SaveThread();
  }
  void take_back(void* state) noexcept override {
    PyEval_RestoreThread(static_cast<PyThreadState*>(state));
  }
};

// Never destroyed: storages may end after static destructors have run.
OuterLock* interpreter_lock() {
  static OuterLock* const kLock = new InterpreterLock();
  return kLock;
}

}  // namespace

SessionCore::SessionCore(const SessionOptions& options) : options_(options) {
  options_.outer_lock = interpreter_lock();
  if (options.budget_bytes <= 0) {
    throw InvalidArgument("session: budget is " + std::to_string(options.budget_bytes) +
                          "; write a positive size such as '4GiB'");
  }
}

void SessionCore::check_thread(const char* what) const {
  if (is_in_child_) {
    throw Unsupported(std::string(what) +
                      ": this process was forked from one with a session and has none itself; "
                      "begin one here, or leave the work to the parent");
  }
  if (session_ == nullptr) {
    throw InvalidArgument(std::string(what) +
                          ": the session is not open; write 'with plimsoll.session(...) as "
                          "session:' and use it inside");
  }
  if (std::this_thread::get_id() != thread_) {
    throw InvalidArgument(std::string(what) +
                          ": a session belongs to the thread that began it, and this is another");
  }
}

Session& SessionCore::session() const {
  check_thread("session");
  return *session_;
}

void SessionCore::begin() {
  if (session_ != nullptr) {
    throw InvalidArgument("session: it is open already; end it before it begins again");
  }
  const py::gil_scoped_release no_gil;
  session_ = std::make_unique<Session>(options_);
  thread_ = std::this_thread::get_id();
  is_in_child_ = false;
}

void SessionCore::end() noexcept {
  if (session_ == nullptr) return;
  const py::gil_scoped_release no_gil;
  end_step(false);
  last_report_ = session_->report();
  session_.reset();
  const std::lock_guard lock(pins_mutex_);
  pins_.clear();
}

void SessionCore::begin_step() {
  check_thread("session.step");
  const py::gil_scoped_release no_gil;
  step_.emplace(session_->step());
}

void SessionCore::end_step(bool is_complete) noexcept {
  if (!step_.has_value()) return;
  // Without the GIL: ending may copy. A destructor may come here without it already.
  std::optional<py::gil_scoped_release> no_gil;
  if (PyGILState_Check() != 0) no_gil.emplace();
  if (!is_complete) step_->abandon();
  step_.reset();
}

bool SessionCore::holds(const c10::Storage& storage) const {
  return session_ != nullptr && session_->holds(storage);
}

void SessionCore::pin(const c10::Storage& pinned) {
  check_thread("session.pin");
  c10::StorageImpl* storage = pinned.unsafeGetStorageImpl();
  {
    const py::gil_scoped_release no_gil;
    if (session_->holds(pinned)) {
      session_->pin(pinned);
    } else {
      // Outside of the arena a storage is moved into it when a step touches it, unless it says that
      // it cannot change its size: then it is counted where it stands.
      storage->set_resizable(false);
    }
  }
  const std::lock_guard lock(pins_mutex_);
  const auto found = pins_.find(storage);
  if (found != pins_.end()) {
    ++found->second.count;
    return;
  }
  auto weak = c10::weak_intrusive_ptr<c10::StorageImpl>(
      c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage));
  pins_.emplace(storage, Pins{std::move(weak), 1});
}

void SessionCore::unpin(c10::StorageImpl* storage) {
  c10::intrusive_ptr<c10::StorageImpl> alive;
  {
    // Never wait for the GIL while holding this.
    const std::lock_guard lock(pins_mutex_);
    const auto found = pins_.find(storage);
    if (found == pins_.end() || --found->second.count > 0) return;
    alive = found->second.storage.lock();
    pins_.erase(found);
  }
  if (alive == nullptr || session_ == nullptr) return;
  const py::gil_scoped_release no_gil;
  session_->unpin(c10::Storage(std::move(alive)));
}

SessionReport SessionCore::report() const {
  if (session_ == nullptr) return last_report_;
  const py::gil_scoped_release no_gil;
  return session_->report();
}

void SessionCore::abandon_in_child() noexcept {
  is_in_child_ = true;
  if (session_ == nullptr) return;
  Session::detach_after_fork();
  // Neither may be destroyed here: their locks and threads are the parent's.
  static_cast<void>(session_.release());
  // NOLINTNEXTLINE(bugprone-unhandled-exception-at-new): a child without these bytes ends here
  static_cast<void>(new std::optional<Step>(std::move(step_)));
  step_.reset();
}

ExportPin::ExportPin(std::shared_ptr<SessionCore> core, const c10::Storage& storage)
    : core_(std::move(core)), storage_(storage.unsafeGetStorageImpl()) {
  core_->pin(storage);
}

void ExportPin::release() noexcept {
  if (core_ == nullptr) return;
  const std::shared_ptr<SessionCore> core = std::move(core_);
  try {
    core->unpin(storage_);
  } catch (const std::exception&) {
    // The session has ended on another thread meanwhile: nothing is pinned any more.
  }
}

}  // namespace plimsoll::python
