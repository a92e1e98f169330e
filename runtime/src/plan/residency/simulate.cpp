// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/plan/simulate.h"

#include <algorithm>

#include <nlohmann/json.hpp>
#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/bytes.h"

namespace plimsoll::plan {

namespace {

// The end of the highest bytes that a step uses.
std::int64_t top_of(const graph::Graph& graph, const Plan& plan, const Step& step) {
  std::int64_t top = 0;
  const auto use = [&](std::int64_t address, std::int64_t bytes) {
    if (bytes > 0) top = std::max(top, address + align_up(bytes, plan.alignment_bytes));
  };
  const auto use_instance = [&](InstanceId id) {
    if (!id.valid()) return;
    const Instance& instance = plan.instances[id.index()];
    use(instance.address, graph.size_bytes(instance.storage));
  };
  for (const InstanceId id : step.touched) use_instance(id);
  use_instance(step.instance);
  use(step.workspace_address, step.workspace_bytes);
  return top;
}

// Of what is resident before the first step.
std::int64_t top_at_start(const graph::Graph& graph, const Plan& plan) {
  Step start;
  start.touched = plan.initial;
  return top_of(graph, plan, start);
}

}  // namespace

Timeline simulate_plan(const graph::Graph& graph, const Plan& plan) {
  Timeline timeline;
  timeline.steps.resize(plan.steps.size());
  timeline.peak_bytes = top_at_start(graph, plan);
  std::array<double, kStreams> free_at = {};
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    const auto stream = static_cast<std::size_t>(step.stream());
    if (step.kind == StepKind::kFree) {
      timeline.steps[i] = {free_at[0], free_at[0]};
      continue;
    }
    double start = free_at[stream];
    for (const std::int32_t wait : step.waits)
      start = std::max(start, timeline.steps[std::size_t(wait)].end_ns);
    if (step.stream() == Stream::kCompute) timeline.stalled_ns += start - free_at[stream];
    timeline.steps[i] = {start, start + step.cost_ns};
    free_at[stream] = timeline.steps[i].end_ns;
    timeline.busy_ns[stream] += step.cost_ns;
    timeline.peak_bytes = std::max(timeline.peak_bytes, top_of(graph, plan, step));
    if (step.kind == StepKind::kRecompute) timeline.recompute_ns += step.cost_ns;
    timeline.total_ns = std::max(timeline.total_ns, free_at[stream]);
  }
  return timeline;
}

namespace {

// Live bytes after every step, in list order.
class LiveBytes {
 public:
  LiveBytes(const graph::Graph& graph, const Plan& plan)
      : graph_(graph), plan_(plan), is_alive_(plan.instances.size()) {
    for (const InstanceId id : plan.initial) begin(id);
  }
  std::int64_t after(const Step& step) {
    if (step.kind == StepKind::kFree) {
      end(step.instance);
    } else if (step.op.valid()) {
      if (step.taken_over.valid()) end(step.taken_over);
      for (const InstanceId id : step.touched)
        if (id.valid() && id != step.taken_over) begin(id);
    } else {
      if (step.taken_over.valid()) end(step.taken_over);
      begin(step.instance);
    }
    return live_;
  }

 private:
  std::int64_t size(InstanceId id) const {
    return align_up(graph_.size_bytes(plan_.instances[id.index()].storage), plan_.alignment_bytes);
  }
  void begin(InstanceId id) {
    if (is_alive_[id.index()]) return;
    is_alive_[id.index()] = 1;
    live_ += size(id);
  }
  void end(InstanceId id) {
    is_alive_[id.index()] = 0;
    live_ -= size(id);
  }
  const graph::Graph& graph_;
  const Plan& plan_;
  std::vector<std::uint8_t> is_alive_;
  std::int64_t live_ = 0;
};

}  // namespace

std::string timeline_to_chrome_trace(const graph::Graph& graph, const Plan& plan,
                                     const Timeline& timeline) {
  using Json = nlohmann::ordered_json;
  Json events = Json::array();
  for (std::size_t stream = 0; stream < kStreams; ++stream)
    events.push_back({{"name", "thread_name"},
                      {"ph", "M"},
                      {"pid", 0},
                      {"tid", stream},
                      {"args", {{"name", stream_name(static_cast<Stream>(stream))}}}});
  LiveBytes live(graph, plan);
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    const StepTime& time = timeline.steps[i];
    const std::int64_t bytes = live.after(step);
    if (step.kind == StepKind::kFree) continue;
    const std::string name =
        step.op.valid() ? std::string(step.kind == StepKind::kRecompute ? "again: " : "") +
                              std::string(graph.name(step.op))
                        : fmt::format("{} storage {}", step_kind_name(step.kind),
                                      plan.instances[step.instance.index()].storage.value());
    events.push_back({{"name", name},
                      {"cat", step_kind_name(step.kind)},
                      {"ph", "X"},
                      {"ts", time.start_ns / 1000},
                      {"dur", (time.end_ns - time.start_ns) / 1000},
                      {"pid", 0},
                      {"tid", static_cast<int>(step.stream())},
                      {"args", {{"step", i}}}});
    if (step.stream() == Stream::kCompute)
      events.push_back({{"name", "planned live bytes"},
                        {"ph", "C"},
                        {"ts", time.start_ns / 1000},
                        {"pid", 0},
                        {"args", {{"bytes", bytes}}}});
  }
  return Json{{"traceEvents", events}, {"displayTimeUnit", "ms"}}.dump();
}

}  // namespace plimsoll::plan
