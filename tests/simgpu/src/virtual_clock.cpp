// SPDX-License-Identifier: Apache-2.0
#include "virtual_clock.h"

#include <algorithm>

namespace plimsoll::simgpu {
namespace {

std::size_t index(int queue) { return static_cast<std::size_t>(queue); }

double bandwidth(const Speeds& speeds, TimedKind kind) {
  switch (kind) {
    case TimedKind::kCopyToDevice:
      return speeds.to_device_bytes_per_ns;
    case TimedKind::kCopyToHost:
      return speeds.to_host_bytes_per_ns;
    default:
      return speeds.memory_bytes_per_ns;
  }
}

}  // namespace

void VirtualClock::start(const Speeds& speeds) {
  const std::uint64_t recording = recording_ + 1;
  *this = VirtualClock();
  recording_ = recording;
  speeds_ = speeds;
  is_on_ = true;
}

std::int64_t VirtualClock::time_of(int queue) const {
  return std::max(queue_ns_[index(queue)], host_ns_);
}

std::int64_t VirtualClock::duration_ns(const OperationCost& cost) const {
  const double move_ns = static_cast<double>(cost.bytes) / bandwidth(speeds_, cost.kind);
  if (cost.kind != TimedKind::kKernel) {
    return speeds_.copy_ns + static_cast<std::int64_t>(move_ns);
  }
  const double compute_ns = cost.flops / speeds_.flops_per_ns;
  return std::max(speeds_.launch_ns, static_cast<std::int64_t>(std::max(move_ns, compute_ns)));
}

std::int64_t* VirtualClock::link_of(int queue, TimedKind kind) {
  const std::size_t device = index(queue / kStreamsPerDevice) * 2;
  if (kind == TimedKind::kCopyToDevice) return &link_ns_[device];
  if (kind == TimedKind::kCopyToHost) return &link_ns_[device + 1];
  return nullptr;
}

void VirtualClock::issue(int queue, std::string_view name, const OperationCost& cost) {
  if (!is_on_ || !cost.is_counted) return;
  host_ns_ += speeds_.issue_ns;
  std::int64_t begin_ns = time_of(queue);
  // Copies of one direction share the link, whatever their streams.
  std::int64_t* link = link_of(queue, cost.kind);
  if (link != nullptr) begin_ns = std::max(begin_ns, *link);
  const std::int64_t end_ns = begin_ns + duration_ns(cost);
  if (link != nullptr) *link = end_ns;
  queue_ns_[index(queue)] = end_ns;
  busy_ns_[index(queue)] += end_ns - begin_ns;
  operations_.push_back({std::string(name), cost.kind, queue / kStreamsPerDevice,
                         queue % kStreamsPerDevice, begin_ns, end_ns, cost.bytes});
}

void VirtualClock::wait(int queue, const Instant& event) {
  if (!is_on_) return;
  const std::int64_t event_ns = ns_of(event);
  const std::int64_t now_ns = time_of(queue);
  if (event_ns <= now_ns) return;
  waited_ns_[index(queue)] += event_ns - now_ns;
  queue_ns_[index(queue)] = event_ns;
}

void VirtualClock::wait_on_host(const Instant& event) {
  if (is_on_) host_ns_ = std::max(host_ns_, ns_of(event));
}

bool VirtualClock::has_happened(const Instant& event) {
  host_ns_ += speeds_.issue_ns;
  return ns_of(event) <= host_ns_;
}

std::vector<StreamTimes> VirtualClock::stream_times() const {
  std::vector<StreamTimes> times;
  for (int queue = 0; queue < kQueues; ++queue) {
    if (busy_ns_[index(queue)] == 0) continue;
    times.push_back({queue / kStreamsPerDevice, queue % kStreamsPerDevice, busy_ns_[index(queue)],
                     waited_ns_[index(queue)]});
  }
  return times;
}

std::int64_t VirtualClock::end_ns() const {
  return std::max(host_ns_, *std::max_element(queue_ns_.begin(), queue_ns_.end()));
}

double VirtualClock::hidden_copy_share() const {
  std::array<bool, kQueues> computes{};
  std::int64_t copied_ns = 0;
  for (const TimedOperation& operation : operations_) {
    if (operation.kind == TimedKind::kKernel) {
      computes[index(operation.device * kStreamsPerDevice + operation.stream)] = true;
    } else if (operation.kind != TimedKind::kCopyOnDevice) {
      copied_ns += operation.end_ns - operation.begin_ns;
    }
  }
  if (copied_ns == 0) return 1;
  std::int64_t stood_ns = 0;
  for (int queue = 0; queue < kQueues; ++queue) {
    if (computes[index(queue)]) stood_ns += waited_ns_[index(queue)];
  }
  // A copy on a stream that computes is waited for by being there.
  for (const TimedOperation& operation : operations_) {
    const bool is_copy =
        operation.kind == TimedKind::kCopyToDevice || operation.kind == TimedKind::kCopyToHost;
    if (is_copy && computes[index(operation.device * kStreamsPerDevice + operation.stream)])
      stood_ns += operation.end_ns - operation.begin_ns;
  }
  return 1 - static_cast<double>(std::min(stood_ns, copied_ns)) / static_cast<double>(copied_ns);
}

}  // namespace plimsoll::simgpu
