// SPDX-License-Identifier: Apache-2.0
// What Python holds of a session: it begins with `with` and ends there, whatever interrupts it.
//
// Nouns: SessionCore, StepContext, PauseContext, ExportPin.
//
// __enter__ and __exit__ are made here and not in Python: the interpreter looks for signals when a
// Python function begins, so that Ctrl-C could leave a step open that was about to end.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include <c10/core/Storage.h>
#include <c10/util/flat_hash_map.h>

#include "plimsoll/session.h"

#include <pybind11/pybind11.h>

namespace plimsoll::python {

// Threads: begin, end, steps and pins on the thread that began it, else InvalidArgument; report()
// and the release of pins on any. Every member that may copy or wait lets go of the GIL.
class SessionCore final : public std::enable_shared_from_this<SessionCore> {
 public:
  explicit SessionCore(const SessionOptions& options);

  void begin();
  // Ends an open step and the session. Does nothing where none is open.
  void end() noexcept;
  bool is_open() const { return session_ != nullptr; }

  void begin_step();
  void end_step(bool is_complete) noexcept;
  bool is_in_step() const { return step_.has_value(); }

  // Counted: the storage stays where it is until as many releases. Nothing happens to storages the
  // session does not hold, but that they will not be moved (they count as pinned once touched).
  void pin(const c10::Storage& storage);
  void unpin(c10::StorageImpl* storage);
  // Says whether the bytes stand in the session's arena, or wait in a lower tier.
  bool holds(const c10::Storage& storage) const;

  SessionReport report() const;
  Session& session() const;

  // In a child made by fork(): drops the session without touching what it holds.
  void abandon_in_child() noexcept;

 private:
  void check_thread(const char* what) const;

  SessionOptions options_;
  std::thread::id thread_;
  std::unique_ptr<Session> session_;
  std::optional<Step> step_;
  SessionReport last_report_;  // of a session that has ended
  bool is_in_child_ = false;

  struct Pins {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    std::int64_t count = 0;
  };
  mutable std::mutex pins_mutex_;
  ska::flat_hash_map<c10::StorageImpl*, Pins> pins_;
};

// `with session.step():`
class StepContext {
 public:
  explicit StepContext(std::shared_ptr<SessionCore> core) : core_(std::move(core)) {}
  void enter() { core_->begin_step(); }
  void exit(bool is_complete) noexcept { core_->end_step(is_complete); }

 private:
  std::shared_ptr<SessionCore> core_;
};

// `with session.pause():`
class PauseContext {
 public:
  explicit PauseContext(std::shared_ptr<SessionCore> core) : core_(std::move(core)) {}
  void enter() { pause_.emplace(core_->session()); }
  void exit() noexcept { pause_.reset(); }

 private:
  // A pause cannot be moved: it is made where it stays.
  struct Held {
    explicit Held(Session& session) : pause(session.pause()) {}
    Pause pause;
  };
  std::shared_ptr<SessionCore> core_;
  std::optional<Held> pause_;
};

// Keeps one storage at its address. Released once, by release() or at its end; holds no reference.
class ExportPin {
 public:
  ExportPin(std::shared_ptr<SessionCore> core, const c10::Storage& storage);
  ~ExportPin() { release(); }
  ExportPin(const ExportPin&) = delete;
  ExportPin& operator=(const ExportPin&) = delete;
  void release() noexcept;

 private:
  std::shared_ptr<SessionCore> core_;
  c10::StorageImpl* storage_;
};

}  // namespace plimsoll::python
