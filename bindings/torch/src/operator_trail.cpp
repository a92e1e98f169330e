// SPDX-License-Identifier: Apache-2.0
#include "operator_trail.h"

#include <array>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>

#include <ATen/record_function.h>

namespace plimsoll::detail {
namespace {

// Deeper nesting than this is counted but not named.
constexpr int kDepth = 64;

struct Trail {
  std::array<const char*, kDepth> names;
  int depth = 0;
  int backward_depth = 0;
};
thread_local Trail t_trail;

// A plain flag beside the address decides what end() has to undo.
std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
  Trail& trail = t_trail;
  if (function.scope() == at::RecordScope::BACKWARD_FUNCTION) {
    ++trail.backward_depth;
    return nullptr;
  }
  if (trail.depth < kDepth) trail.names[static_cast<std::size_t>(trail.depth)] = function.name();
  ++trail.depth;
  return nullptr;
}

void on_end(const at::RecordFunction& function, at::ObserverContext*) {
  Trail& trail = t_trail;
  // A callback attached while an operator runs sees its end but not its start.
  int& depth =
      function.scope() == at::RecordScope::BACKWARD_FUNCTION ? trail.backward_depth : trail.depth;
  if (depth > 0) --depth;
}

bool only_makes_empty(const char* name) {
  static constexpr std::array<std::string_view, 6> kNames = {
      "aten::empty",   "aten::empty_strided", "aten::empty_like",
      "aten::resize_", "aten::resize_as_",    "aten::new_empty"};
  for (const std::string_view other : kNames) {
    if (other == name) return true;
  }
  return false;
}

// Names come from schemas (which live for ever) or from labels of user code (which do not).
const char* interned(const char* name) {
  static std::mutex mutex;
  static auto* names = new std::unordered_set<std::string>();
  thread_local std::unordered_set<std::string_view> t_known;
  if (const auto found = t_known.find(name); found != t_known.end()) return found->data();
  const std::lock_guard lock(mutex);
  const char* text = names->insert(name).first->c_str();
  t_known.insert(text);
  return text;
}

}  // namespace

void OperatorTrail::attach(bool wanted) {
  static std::mutex mutex;
  static std::optional<at::CallbackHandle> handle;
  const std::lock_guard lock(mutex);
  if (wanted && !handle) {
    handle = at::addGlobalCallback(
        at::RecordFunctionCallback(on_start, on_end)
            .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  } else if (!wanted && handle) {
    at::removeCallback(*handle);
    handle.reset();
  }
}

const char* OperatorTrail::current_operator() {
  const Trail& trail = t_trail;
  const int named = std::min(trail.depth, kDepth);
  if (named == 0) return "";
  for (int level = named - 1; level >= 0; --level) {
    const char* name = trail.names[static_cast<std::size_t>(level)];
    if (!only_makes_empty(name)) return interned(name);
  }
  return interned(trail.names[static_cast<std::size_t>(named - 1)]);
}

AllocationKind OperatorTrail::current_kind() {
  const Trail& trail = t_trail;
  if (trail.backward_depth > 0) return AllocationKind::kBackward;
  return trail.depth > 0 ? AllocationKind::kForward : AllocationKind::kOutside;
}

}  // namespace plimsoll::detail
