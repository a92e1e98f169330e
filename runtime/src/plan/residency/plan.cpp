// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/plan/plan.h"

#include <algorithm>
#include <string_view>

#include <nlohmann/json.hpp>

namespace plimsoll::plan {

using graph::OpId;

const char* step_kind_name(StepKind kind) noexcept {
  switch (kind) {
    case StepKind::kRun:
      return "run";
    case StepKind::kRecompute:
      return "recompute";
    case StepKind::kOffload:
      return "offload";
    case StepKind::kPrefetch:
      return "prefetch";
    case StepKind::kMove:
      return "move";
    case StepKind::kFree:
      return "free";
  }
  return "?";
}

const char* stream_name(Stream stream) noexcept {
  switch (stream) {
    case Stream::kCompute:
      return "compute";
    case Stream::kCopyOut:
      return "copy_out";
    case Stream::kCopyIn:
      return "copy_in";
  }
  return "?";
}

namespace {

// Names under which readers without flags know operators that draw from a generator.
bool draws_by_name(std::string_view kind) {
  for (const std::string_view part : {"dropout", "bernoulli", "rand", "normal_", "uniform_"})
    if (kind.find(part) != std::string_view::npos) return true;
  return false;
}

}  // namespace

Recomputability Recomputability::make(const graph::Graph& graph) {
  Recomputability result;
  result.allowed_.resize(graph.op_count());
  bool is_stated = false;
  for (std::size_t i = 0; i < graph.op_count(); ++i)
    is_stated = is_stated || graph.has_flag(OpId(i), graph::kRecomputable);
  for (std::size_t i = 0; i < graph.op_count(); ++i) {
    const OpId o(i);
    bool allowed = is_stated ? graph.has_flag(o, graph::kRecomputable)
                             : !graph.has_flag(o, graph::kRandom) && !draws_by_name(graph.kind(o));
    allowed = allowed && !graph.has_flag(o, graph::kSideEffect) &&
              graph.phase(o) != graph::Phase::kOptimizer;
    result.allowed_[i] = allowed ? 1 : 0;
  }
  return result;
}

std::string plan_to_json(const graph::Graph& graph, const Plan& plan) {
  using Json = nlohmann::ordered_json;
  Json out = {{"format", "plimsoll-plan"},
              {"version", 1},
              {"arena_bytes", plan.arena_bytes},
              {"live_bytes", plan.live_bytes},
              {"alignment_bytes", plan.alignment_bytes}};
  Json& instances = out["instances"] = Json::array();
  for (const Instance& instance : plan.instances)
    instances.push_back({{"storage", instance.storage.value()},
                         {"address", instance.address},
                         {"size_bytes", graph.size_bytes(instance.storage)}});
  Json& initial = out["initial"] = Json::array();
  for (const InstanceId id : plan.initial) initial.push_back(id.value());
  Json& on_host = out["starts_on_host"] = Json::array();
  for (const graph::StorageId s : plan.starts_on_host) on_host.push_back(s.value());
  Json& steps = out["steps"] = Json::array();
  for (const Step& step : plan.steps) {
    Json item = {{"kind", step_kind_name(step.kind)}};
    if (step.op.valid()) {
      item["op"] = step.op.value();
      item["name"] = graph.name(step.op);
      Json& touched = item["touched"] = Json::array();
      for (const InstanceId id : step.touched) touched.push_back(id.value());
    } else {
      item["instance"] = step.instance.value();
    }
    if (step.taken_over.valid()) item["taken_over"] = step.taken_over.value();
    if (step.workspace_bytes > 0) {
      item["workspace_bytes"] = step.workspace_bytes;
      item["workspace_address"] = step.workspace_address;
    }
    if (step.kind == StepKind::kOffload || step.kind == StepKind::kPrefetch)
      item["tier"] = step.tier == Tier::kHost ? "host" : "file";
    if (step.kind != StepKind::kFree) {
      item["stream"] = stream_name(step.stream());
      item["cost_ns"] = step.cost_ns;
    }
    if (!step.waits.empty()) item["waits"] = step.waits;
    steps.push_back(std::move(item));
  }
  return out.dump();
}

}  // namespace plimsoll::plan
