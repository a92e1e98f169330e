// SPDX-License-Identifier: Apache-2.0
#include "simgpu/mutations.h"

#include <array>
#include <mutex>
#include <utility>

#include "mutation_state.h"

namespace plimsoll::simgpu {

struct Mutation::State {
  std::function<bool(const SyncPoint&)> leaves_out;
  std::array<std::int64_t, 5> ordinals{};
  std::int64_t seen = 0;
  std::int64_t left_out = 0;
};

namespace {

std::mutex g_mutex;
std::shared_ptr<Mutation::State> g_state;  // guarded by g_mutex

}  // namespace

Mutation::Mutation(std::function<bool(const SyncPoint&)> leaves_out)
    : state_(std::make_shared<State>()) {
  state_->leaves_out = std::move(leaves_out);
  const std::lock_guard lock(g_mutex);
  g_state = state_;
}

Mutation::Mutation(SyncKind kind, std::optional<std::int64_t> nth)
    : Mutation([kind, nth](const SyncPoint& point) {
        return point.kind == kind && (!nth || point.ordinal == *nth);
      }) {}

Mutation::~Mutation() {
  const std::lock_guard lock(g_mutex);
  if (g_state == state_) g_state = nullptr;
}

std::int64_t Mutation::seen() const {
  const std::lock_guard lock(g_mutex);
  return state_->seen;
}

std::int64_t Mutation::left_out() const {
  const std::lock_guard lock(g_mutex);
  return state_->left_out;
}

bool is_left_out(SyncKind kind, std::optional<c10::Stream> waiting,
                 std::optional<c10::Stream> awaited) {
  const std::lock_guard lock(g_mutex);
  if (g_state == nullptr) return false;
  ++g_state->seen;
  const std::int64_t ordinal = g_state->ordinals[static_cast<std::size_t>(kind)]++;
  const bool left_out = g_state->leaves_out({kind, ordinal, waiting, awaited});
  if (left_out) ++g_state->left_out;
  return left_out;
}

}  // namespace plimsoll::simgpu
