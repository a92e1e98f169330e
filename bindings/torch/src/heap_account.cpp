// SPDX-License-Identifier: Apache-2.0
#include "heap_account.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <c10/util/Exception.h>

#include "plimsoll/base/bytes.h"
#include "plimsoll/base/error.h"

#include "device_allocator.h"
#include "host_allocator.h"
#include "operator_trail.h"
#include "session_device.h"
#include "vector_math.h"

namespace plimsoll {

std::string_view allocation_kind_name(AllocationKind kind) noexcept {
  switch (kind) {
    case AllocationKind::kForward:
      return "forward";
    case AllocationKind::kBackward:
      return "backward";
    case AllocationKind::kOutside:
      return "outside";
  }
  return "outside";
}

namespace {

detail::HeapAccount& account_of(const c10::Device& device) {
  if (device.is_cpu()) return detail::HostAllocator::installed().account();
  return detail::DeviceAllocator::installed(device.type())
      .account(detail::with_index(device).index());
}

}  // namespace

void install_allocator(const AllocatorOptions& options) {
  if (options.limit_bytes < 0) {
    throw InvalidArgument("install_allocator: limit_bytes is " +
                          std::to_string(options.limit_bytes) +
                          "; write a positive number of bytes, or 0 for no limit");
  }
  if (options.plan && !options.device.is_cpu()) {
    throw Unsupported("install_allocator: plan is for the CPU; leave it off for device " +
                      options.device.str());
  }
  detail::resolve_vector_functions();
  detail::put_allocator_in_front(options.device.type());
  account_of(options.device).enable(options);
  if (options.device.is_cpu()) detail::HostAllocator::installed().set_planning(options.plan);
}

void mark_step() {
  if (exec::ReplayEngine* engine = detail::HostAllocator::installed().plan_engine())
    engine->step_mark();
}

PlannedAllocations planned_allocations() {
  const exec::ReplayEngine* engine = detail::HostAllocator::installed().plan_engine();
  if (engine == nullptr) return {};
  const exec::ReplayStatistics all = engine->statistics();
  return {.steps = all.steps,
          .planned = all.planned,
          .missed = all.missed,
          .escaped = all.escaped,
          .refused = all.refused,
          .plans_made = all.plans_made,
          .arena_bytes = all.arena_bytes};
}

AllocatorStatistics allocator_statistics(c10::Device device) {
  return account_of(device).statistics();
}

void reset_allocator_statistics(c10::Device device) { account_of(device).reset(); }

std::vector<PeakOwner> peak_owners(std::size_t most, c10::Device device) {
  return account_of(device).peak_owners(most);
}

void record_memory_history(std::size_t most_events, c10::Device device) {
  account_of(device).record_history(most_events);
}

std::string memory_snapshot(c10::Device device) { return account_of(device).snapshot(); }

namespace detail {
namespace {

constexpr std::int64_t kAlignment = 64;

AllocatorStatistics::PerKind& per_kind(AllocatorStatistics& figures, AllocationKind kind) {
  return figures.kinds[static_cast<std::size_t>(kind)];
}

}  // namespace

void HeapAccount::enable(const AllocatorOptions& options) {
  OperatorTrail::attach(options.attribute);
  const std::lock_guard lock(mutex_);
  figures_.limit_bytes = options.limit_bytes;
  enabled_.store(true, std::memory_order_release);
}

AllocatorStatistics HeapAccount::statistics() const {
  const std::lock_guard lock(mutex_);
  AllocatorStatistics figures = figures_;
  figures.live_blocks = static_cast<std::int64_t>(live_.size());
  return figures;
}

void HeapAccount::reset() {
  const std::lock_guard lock(mutex_);
  figures_.peak_bytes = figures_.live_bytes;
  figures_.peak_op.clear();
  figures_.refused = 0;
  for (auto& kind : figures_.kinds) kind.allocated_bytes = kind.allocations = 0;
  peak_ordinal_ = next_ordinal_;
  freed_since_peak_.clear();
}

std::vector<PeakOwner> HeapAccount::peak_owners(std::size_t most) const {
  std::vector<Block> blocks;
  {
    const std::lock_guard lock(mutex_);
    blocks = freed_since_peak_;
    for (const auto& [address, block] : live_) {
      if (block.ordinal < peak_ordinal_) blocks.push_back(block);
    }
  }
  std::sort(blocks.begin(), blocks.end(), [](const Block& a, const Block& b) {
    return std::pair(-a.bytes, a.ordinal) < std::pair(-b.bytes, b.ordinal);
  });
  std::vector<PeakOwner> owners;
  for (const Block& block : blocks) {
    if (owners.size() == most) break;
    owners.push_back({block.operator_name, block.kind, block.ordinal, block.bytes});
  }
  return owners;
}

void HeapAccount::record_history(std::size_t most_events) {
  if (!enabled_.load(std::memory_order_acquire))
    throw InvalidArgument("record_memory_history: nothing is counted before install_allocator");
  const std::lock_guard lock(mutex_);
  history_.start(most_events);
}

std::string HeapAccount::snapshot() const {
  MemoryHistory history;
  std::vector<MemoryHistory::Event> live;
  {
    const std::lock_guard lock(mutex_);
    if (!history_.is_recording())
      throw InvalidArgument("memory_snapshot: nothing is recorded before record_memory_history");
    history = history_;
    for (const auto& [address, block] : live_)
      live.push_back({address, block.bytes, block.operator_name, block.kind, false, 0});
  }
  return history.write(std::move(live));
}

void HeapAccount::charge_locked(std::int64_t bytes, AllocationKind kind,
                                const char* operator_name) {
  const std::int64_t limit =
      figures_.limit_bytes > 0 ? figures_.limit_bytes : std::numeric_limits<std::int64_t>::max();
  if (bytes > limit - figures_.live_bytes) {
    ++figures_.refused;
    TORCH_CHECK_WITH(
        OutOfMemoryError, false, "Plimsoll: out of memory in ",
        operator_name[0] != '\0' ? operator_name : "user code", ": requested ", bytes,
        " bytes, live ", figures_.live_bytes, ", limit ", limit, ", largest free ",
        std::max<std::int64_t>(0, limit - figures_.live_bytes) / kAlignment * kAlignment);
  }
  figures_.live_bytes += bytes;
  auto& counts = per_kind(figures_, kind);
  counts.live_bytes += bytes;
  counts.allocated_bytes += bytes;
  ++counts.allocations;
}

HeapAccount::Charge::Charge(HeapAccount& account, std::size_t bytes) : account_(account) {
  if (!account.enabled_.load(std::memory_order_acquire)) return;
  const std::int64_t rounded = align_up(static_cast<std::int64_t>(bytes), kAlignment);
  operator_name_ = OperatorTrail::current_operator();
  kind_ = OperatorTrail::current_kind();
  const std::lock_guard lock(account.mutex_);
  account.charge_locked(rounded, kind_, operator_name_);
  bytes_ = rounded;
}

HeapAccount::Charge::~Charge() {
  if (bytes_ == 0) return;
  const std::lock_guard lock(account_.mutex_);
  account_.figures_.live_bytes -= bytes_;
  auto& counts = per_kind(account_.figures_, kind_);
  counts.live_bytes -= bytes_;
  counts.allocated_bytes -= bytes_;
  --counts.allocations;
}

void HeapAccount::Charge::commit(void* address) {
  if (bytes_ == 0) return;
  const std::lock_guard lock(account_.mutex_);
  account_.live_[address] = {bytes_, account_.next_ordinal_++, operator_name_, kind_};
  if (account_.history_.is_recording())
    account_.history_.note({address, bytes_, operator_name_, kind_, false, 0});
  if (account_.figures_.live_bytes > account_.figures_.peak_bytes) {
    account_.figures_.peak_bytes = account_.figures_.live_bytes;
    account_.figures_.peak_op = operator_name_;
    account_.peak_ordinal_ = account_.next_ordinal_;
    account_.freed_since_peak_.clear();
  }
  bytes_ = 0;
}

void HeapAccount::discharge(void* address) noexcept {
  if (!enabled_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(address);
  if (found == live_.end()) return;
  const Block block = found->second;
  live_.erase(found);
  if (history_.is_recording())
    history_.note({address, block.bytes, block.operator_name, block.kind, true, 0});
  figures_.live_bytes -= block.bytes;
  per_kind(figures_, block.kind).live_bytes -= block.bytes;
  if (block.ordinal < peak_ordinal_) freed_since_peak_.push_back(block);
}

}  // namespace detail
}  // namespace plimsoll
