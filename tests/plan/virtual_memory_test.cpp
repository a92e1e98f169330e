// SPDX-License-Identifier: Apache-2.0
// Plans run in virtual time over a memory that remembers, byte by byte, what was written last.
// Copies are slow and read and write at the worst moment; freed bytes are poisoned.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plimsoll/plan/residency.h"
#include "plimsoll/plan/simulate.h"

#include "../graph/random_graph.h"
#include "plan_cases.h"

namespace plimsoll::plan {
namespace {

using graph::Graph;
using graph::OpId;
using graph::StorageId;
using graph::ValueId;
using testing::round_device;
using Tag = std::uint64_t;

constexpr Tag kPoison = 1;
constexpr Tag kHalfWritten = 2;

// What a plain run leaves in every value: a digest of the op, the result and what the op read.
class PlainRun {
 public:
  explicit PlainRun(const Graph& graph) : tags_(graph.value_count()) {
    for (std::size_t i = 0; i < tags_.size(); ++i)
      if (!graph.producer(ValueId(i)).valid()) tags_[i] = 1000 + i;
    for (const OpId o : graph.program_order()) {
      Tag all = 7919 + static_cast<Tag>(o.value());
      for (const ValueId v : graph.operands(o)) all = all * 1000003 + tags_[v.index()];
      for (const ValueId v : graph.results(o))
        tags_[v.index()] = all * 31 + static_cast<Tag>(v.value()) + 100;
    }
  }
  Tag tag(ValueId v) const { return tags_[v.index()]; }

 private:
  std::vector<Tag> tags_;
};

// An event of the run: ends come before starts of the same time.
struct Event {
  double ns = 0;
  bool is_start = false;
  std::size_t step = 0;
  std::function<void()> act;
};

class VirtualRun {
 public:
  VirtualRun(const Graph& graph, Plan plan, double slowness)
      : graph_(graph), plain_(graph), plan_(std::move(plan)), memory_(plan_.arena_bytes, kPoison) {
    for (Step& step : plan_.steps)
      if (!step.op.valid()) step.cost_ns *= slowness;
  }

  // Empty where every op read what the plain run read and the results are the same.
  std::string run() {
    for (const InstanceId id : plan_.initial)
      for (const ValueId v : graph_.values(storage(id)))
        if (!graph_.producer(v).valid()) write(id, plain_.tag(v));
    collect_events();
    std::stable_sort(events_.begin(), events_.end(), [](const Event& a, const Event& b) {
      return a.ns != b.ns ? a.ns < b.ns : a.is_start < b.is_start;
    });
    for (const Event& event : events_) event.act();
    return problem_;
  }

 private:
  StorageId storage(InstanceId id) const { return plan_.instances[id.index()].storage; }
  std::int64_t bytes(InstanceId id) const { return graph_.size_bytes(storage(id)); }
  void write(InstanceId id, Tag tag) {
    const auto at = memory_.begin() + plan_.instances[id.index()].address;
    std::fill(at, at + bytes(id), tag);
  }
  void expect(InstanceId id, Tag tag, std::size_t step) {
    const auto at = memory_.begin() + plan_.instances[id.index()].address;
    const bool same = std::all_of(at, at + bytes(id), [&](Tag t) { return t == tag; });
    if (!same && problem_.empty()) problem_ = "step " + std::to_string(step);
  }
  Tag first_byte(InstanceId id) const {
    return bytes(id) == 0 ? 0 : memory_[std::size_t(plan_.instances[id.index()].address)];
  }

  void collect_events() {
    const Timeline timeline = simulate_plan(graph_, plan_);
    std::vector<double> used(plan_.instances.size());
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
      const Step& step = plan_.steps[i];
      const StepTime time = timeline.steps[i];
      if (step.kind == StepKind::kFree) {
        events_.push_back({used[step.instance.index()], false, i,
                           [this, &step] { write(step.instance, kPoison); }});
        continue;
      }
      for (const InstanceId id : step.touched)
        if (id.valid()) used[id.index()] = std::max(used[id.index()], time.end_ns);
      if (step.op.valid()) {
        add_op(step, time, i);
        continue;
      }
      used[step.instance.index()] = std::max(used[step.instance.index()], time.end_ns);
      if (step.kind == StepKind::kMove) {
        add_move(step, time, i);
      } else {
        add_copy(step, time, i);
      }
    }
  }
  // An op reads all the time and writes from its start.
  void add_op(const Step& step, StepTime time, std::size_t i) {
    events_.push_back({time.start_ns, true, i, [this, &step, i] {
                         for (const ValueId v : graph_.operands(step.op))
                           if (const InstanceId id = instance(step, v); id.valid())
                             expect(id, plain_.tag(v), i);
                         for (const ValueId v : graph_.results(step.op))
                           if (const InstanceId id = instance(step, v); id.valid())
                             write(id, plain_.tag(v));
                       }});
    events_.push_back({time.end_ns, false, i, [this, &step, i] {
                         for (const ValueId v : graph_.results(step.op))
                           if (const InstanceId id = instance(step, v); id.valid())
                             expect(id, plain_.tag(v), i);
                       }});
  }
  // A copy out reads at its end; a copy in spoils its bytes at its start and fills them at its end.
  void add_copy(const Step& step, StepTime time, std::size_t i) {
    Tag& host = host_[storage(step.instance)];
    if (step.kind == StepKind::kOffload) {
      events_.push_back(
          {time.end_ns, false, i, [this, &step, &host] { host = first_byte(step.instance); }});
      return;
    }
    events_.push_back(
        {time.start_ns, true, i, [this, &step] { write(step.instance, kHalfWritten); }});
    events_.push_back({time.end_ns, false, i, [this, &step, &host, i] {
                         expect(step.instance, kHalfWritten, i);
                         write(step.instance, host);
                       }});
  }
  // Reads and writes all the time: what it leaves behind is spoiled from its start on.
  void add_move(const Step& step, StepTime time, std::size_t i) {
    auto moved = std::make_shared<Tag>(0);
    events_.push_back({time.start_ns, true, i, [this, &step, moved, i] {
                         *moved = first_byte(step.taken_over);
                         expect(step.taken_over, *moved, i);
                         write(step.taken_over, kPoison);
                         write(step.instance, *moved);
                       }});
    events_.push_back(
        {time.end_ns, false, i, [this, &step, moved, i] { expect(step.instance, *moved, i); }});
  }
  InstanceId instance(const Step& step, ValueId v) const {
    const auto touched = graph_.touched(step.op);
    for (std::size_t i = 0; i < touched.size(); ++i)
      if (touched[i] == graph_.storage(v)) return step.touched[i];
    return {};
  }

  const Graph& graph_;
  PlainRun plain_;
  Plan plan_;
  std::vector<Tag> memory_;
  std::map<StorageId, Tag> host_;
  std::vector<Event> events_;
  std::string problem_;
};

graph::testing::RandomGraphOptions shape_of(std::uint32_t seed) {
  graph::testing::RandomGraphOptions shape;
  shape.ops = 6 + static_cast<int>(seed % 12);
  shape.max_size = 40;
  shape.unordered_writes = false;
  return shape;
}

PlanReport tight_plan(const Graph& graph) {
  PlannerOptions options;
  options.evaluations = 8;
  options.policy = Policy::kOffloadOnly;
  Planner planner(graph, round_device(0.5), options);
  return planner.plan(planner.minimum_budget_bytes());
}

TEST(VirtualMemory, SlowCopiesAndPoisonedBytesChangeNoResult) {
  std::int64_t copied = 0;
  int moves = 0;
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    const Graph graph = graph::testing::random_graph(seed, shape_of(seed));
    const PlanReport report = tight_plan(graph);
    copied += report.offloaded_bytes;
    for (const Step& step : report.plan.steps) moves += step.kind == StepKind::kMove ? 1 : 0;
    for (const double slowness : {1.0, 10.0, 0.1})
      ASSERT_EQ(VirtualRun(graph, report.plan, slowness).run(), "")
          << "seed " << seed << ", copies x " << slowness;
  }
  EXPECT_GT(copied, 1000);
  EXPECT_GT(moves, 3);
}

// The gate seen red: without its waits some plan reads what is not there yet.
TEST(VirtualMemory, MissingWaitsShow) {
  int seen = 0;
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    const Graph graph = graph::testing::random_graph(seed, shape_of(seed));
    Plan plan = tight_plan(graph).plan;
    for (Step& step : plan.steps) step.waits.clear();
    seen += VirtualRun(graph, plan, 10).run().empty() ? 0 : 1;
  }
  EXPECT_GT(seen, 10);
}

}  // namespace
}  // namespace plimsoll::plan
