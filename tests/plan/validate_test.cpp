// SPDX-License-Identifier: Apache-2.0
// Every way in which a plan can be wrong, each made by breaking one thing in a right one.
#include "plimsoll/plan/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plimsoll/plan/residency.h"

#include "plan_cases.h"

namespace plimsoll::plan {
namespace {

using graph::Graph;
using graph::GraphBuilder;
using graph::OpId;
using graph::StorageId;
using graph::ValueKind;

//     a -> b -> c -> d, and d reads a again; a is sent away between b and d
struct Handmade {
  Graph graph;
  Plan plan;

  Handmade() {
    GraphBuilder builder;
    const auto x = builder.add_tensor(64, ValueKind::kInput);
    const auto a = builder.add_tensor(64);
    const auto b = builder.add_tensor(64);
    const auto c = builder.add_tensor(64);
    const auto d = builder.add_tensor(64, ValueKind::kOutput, true);
    builder.add_op({.kind = "a", .operands = {x}, .results = {a}, .flags = graph::kRecomputable});
    builder.add_op({.kind = "b", .operands = {a}, .results = {b}, .flags = graph::kRecomputable});
    builder.add_op({.kind = "c", .operands = {b}, .results = {c}});
    builder.add_op({.kind = "d", .operands = {a, c}, .results = {d}});
    graph = builder.build();
    plan.alignment_bytes = 64;
    // Instances: 0 x, 1 a, 2 b, 3 c, 4 d, 5 a fetched.
    for (const auto& [storage, address] :
         {std::pair{0, 0}, {1, 64}, {2, 0}, {3, 128}, {4, 0}, {1, 64}})
      plan.instances.push_back({StorageId(storage), address});
    plan.initial = {InstanceId(0)};
    add_op(0, {0, 1});
    add_free(0);
    add_op(1, {1, 2});
    add_copy(StepKind::kOffload, 1);
    add_op(2, {2, 3});
    add_free(1);
    add_free(2);
    add_copy(StepKind::kPrefetch, 5);
    add_op(3, {5, 3, 4});
    add_free(5);
    add_free(3);
    plan.arena_bytes = 192;
    plan.live_bytes = 192;
    add_waits(graph, plan);
  }
  void add_op(int op, const std::vector<int>& touched) {
    Step step;
    step.op = OpId(op);
    for (const int id : touched) step.touched.push_back(InstanceId(id));
    plan.steps.push_back(step);
  }
  void add_free(int id) { add_copy(StepKind::kFree, id); }
  void add_copy(StepKind kind, int id) {
    Step step;
    step.kind = kind;
    step.instance = InstanceId(id);
    plan.steps.push_back(step);
  }
  PlanFault fault(std::int64_t budget = 192) const {
    return validate_plan(graph, plan, budget).fault;
  }
};

enum At { kA, kFreeX, kB, kOut, kC, kFreeA, kFreeB, kIn, kD, kFreeIn, kFreeC };

TEST(ValidatePlan, AcceptsTheRightPlanAndAddsItUp) {
  const Handmade it;
  const PlanVerdict verdict = validate_plan(it.graph, it.plan, 192);
  EXPECT_TRUE(verdict.valid()) << verdict.message;
  EXPECT_EQ(verdict.peak_bytes, 192);
  EXPECT_EQ(verdict.live_bytes, 192);
  EXPECT_EQ(verdict.host_peak_bytes, 64);
}

TEST(ValidatePlan, FindsAMissingOpAndOneThatRunsTwiceOrTooEarly) {
  Handmade missing;
  missing.plan.steps.pop_back();
  missing.plan.steps.pop_back();
  missing.plan.steps.pop_back();
  EXPECT_EQ(missing.fault(), PlanFault::kOrder);
  Handmade twice;
  twice.plan.steps.insert(twice.plan.steps.begin() + kC, twice.plan.steps[kB]);
  add_waits(twice.graph, twice.plan);
  EXPECT_EQ(twice.fault(), PlanFault::kOrder);
  Handmade early;
  std::swap(early.plan.steps[kA], early.plan.steps[kB]);
  EXPECT_EQ(early.fault(), PlanFault::kOrder);
}

TEST(ValidatePlan, FindsAnOperandThatIsNotThere) {
  Handmade it;  // d reads the a that has been sent away
  it.plan.steps[kD].touched[0] = InstanceId(1);
  EXPECT_EQ(it.fault(), PlanFault::kOperand);
}

TEST(ValidatePlan, FindsAStaleVersion) {
  GraphBuilder builder;
  const auto a = builder.add_tensor(64);
  const auto a2 = builder.add_value({.storage = builder.storage(a), .overwrites = a});
  const auto b = builder.add_tensor(64, ValueKind::kOutput, true);
  builder.add_op({.kind = "a", .results = {a}});
  builder.add_op({.kind = "update", .operands = {a}, .results = {a2}});
  builder.add_op({.kind = "b", .operands = {a2}, .results = {b}});
  Handmade it;
  it.graph = builder.build();
  it.plan = Plan();
  it.plan.alignment_bytes = 64;
  // Instances: 0 a, 1 a as fetched from a copy made before the update, 2 b.
  it.plan.instances = {{StorageId(0), 0}, {StorageId(0), 64}, {StorageId(1), 128}};
  it.add_op(0, {0});
  it.add_copy(StepKind::kOffload, 0);
  it.add_op(1, {0});
  it.add_copy(StepKind::kPrefetch, 1);
  it.add_op(2, {1, 2});
  it.add_free(0);
  it.add_free(1);
  it.plan.arena_bytes = it.plan.live_bytes = 192;
  add_waits(it.graph, it.plan);
  EXPECT_EQ(it.fault(), PlanFault::kOperand);
}

TEST(ValidatePlan, FindsARecomputationThatIsNotAllowed) {
  Handmade it;  // c does not say that it may run again
  Step again = it.plan.steps[kC];
  again.kind = StepKind::kRecompute;
  it.plan.instances.push_back({StorageId(3), 192});
  again.touched[1] = InstanceId(6);
  it.plan.steps.insert(it.plan.steps.begin() + kFreeA, again);
  add_waits(it.graph, it.plan);
  EXPECT_EQ(it.fault(256), PlanFault::kRecompute);
  Handmade early;  // b runs "again" before it has run
  early.plan.steps[kB].kind = StepKind::kRecompute;
  EXPECT_EQ(early.fault(), PlanFault::kRecompute);
}

TEST(ValidatePlan, FindsARecomputationThatWouldChangeLastingState) {
  GraphBuilder builder;
  const auto w = builder.add_tensor(64, ValueKind::kParameter, true);
  const auto w2 = builder.add_value(
      {.storage = builder.storage(w), .kind = ValueKind::kParameter, .overwrites = w});
  const auto y = builder.add_tensor(64, ValueKind::kOutput, true);
  builder.add_op(
      {.kind = "batch_norm", .operands = {w}, .results = {w2, y}, .flags = graph::kRecomputable});
  Handmade it;
  it.graph = builder.build();
  it.plan = Plan();
  it.plan.alignment_bytes = 64;
  it.plan.instances = {{StorageId(0), 0}, {StorageId(1), 64}, {StorageId(1), 128}};
  it.plan.initial = {InstanceId(0)};
  it.add_op(0, {0, 1});
  it.add_free(1);
  it.add_op(0, {-1, 2});  // leaves the state alone
  it.plan.steps.back().kind = StepKind::kRecompute;
  it.plan.arena_bytes = 192;  // with a hole where y was before
  it.plan.live_bytes = 128;
  EXPECT_EQ(it.fault(), PlanFault::kNone);
  it.plan.steps.back().touched[0] = InstanceId(0);
  EXPECT_EQ(it.fault(), PlanFault::kRecompute);
}

TEST(ValidatePlan, FindsUseAfterFreeDoubleFreeAndWhatIsNeverFreed) {
  Handmade use;
  std::swap(use.plan.steps[kFreeC], use.plan.steps[kD]);
  EXPECT_NE(use.fault(), PlanFault::kNone);
  Handmade twice;
  twice.plan.steps.push_back(twice.plan.steps[kFreeC]);
  EXPECT_EQ(twice.fault(), PlanFault::kLifetime);
  Handmade never;
  never.plan.steps.pop_back();
  EXPECT_EQ(never.fault(), PlanFault::kLifetime);
}

TEST(ValidatePlan, FindsAFetchOfWhatWasNeverSentAndFromTheWrongTier) {
  Handmade it;
  it.plan.steps[kIn].tier = Tier::kFile;
  EXPECT_EQ(it.fault(), PlanFault::kHostCopy);
  it.plan.steps.erase(it.plan.steps.begin() + kOut);
  for (Step& step : it.plan.steps) step.waits.clear();
  EXPECT_EQ(it.fault(), PlanFault::kHostCopy);
}

TEST(ValidatePlan, FindsTwoLiveInstancesAtOneAddress) {
  Handmade it;
  it.plan.instances[3].address = 0;  // c over b, which it reads
  EXPECT_EQ(it.fault(), PlanFault::kOverlap);
}

TEST(ValidatePlan, FindsABadAddress) {
  Handmade it;
  it.plan.instances[3].address = 130;
  EXPECT_EQ(it.fault(), PlanFault::kAlignment);
  it.plan.instances[3].address = -64;
  EXPECT_EQ(it.fault(), PlanFault::kAlignment);
}

TEST(ValidatePlan, FindsABrokenBudgetAndAPlanThatClaimsOtherBytesThanItNeeds) {
  EXPECT_EQ(Handmade().fault(191), PlanFault::kBudget);
  for (const std::int64_t claim : {128, 256}) {
    Handmade live;
    live.plan.live_bytes = claim;
    EXPECT_EQ(live.fault(512), PlanFault::kBudget) << claim;
    Handmade arena;
    arena.plan.arena_bytes = claim;
    EXPECT_EQ(arena.fault(512), PlanFault::kBudget) << claim;
  }
}

// Every wait of a plan is needed. Returns how many there are.
template <typename Made>
int remove_each_wait() {
  const Made right;
  int removed = 0;
  for (std::size_t step = 0; step < right.plan.steps.size(); ++step) {
    for (std::size_t wait = 0; wait < right.plan.steps[step].waits.size(); ++wait) {
      Made it;
      it.plan.steps[step].waits.erase(it.plan.steps[step].waits.begin() +
                                      static_cast<std::ptrdiff_t>(wait));
      EXPECT_EQ(it.fault(), PlanFault::kRace) << "step " << step;
      ++removed;
    }
  }
  return removed;
}

// Torchtune's fault: a copy on a side stream, and the bytes handed on before it has ended.
TEST(ValidatePlan, FindsEveryMissingWait) {
  EXPECT_GE(remove_each_wait<Handmade>(), 3);  // the copy out waits, the copy in waits, d waits
}

TEST(ValidatePlan, FindsBytesHandedOnWhileTheirCopyRuns) {
  Handmade it;  // a is freed at once and c written over it, while the copy may still read it
  std::swap(it.plan.steps[kC], it.plan.steps[kFreeA]);
  it.plan.instances[3].address = 64;
  it.plan.instances[5].address = 128;
  add_waits(it.graph, it.plan);
  EXPECT_EQ(it.fault(), PlanFault::kNone);
  for (Step& step : it.plan.steps)
    if (step.op == OpId(2)) step.waits.clear();
  EXPECT_EQ(it.fault(), PlanFault::kRace);
}

TEST(ValidatePlan, FindsAResultThatIsNotWhereItBegan) {
  GraphBuilder builder;
  const auto w = builder.add_tensor(64, ValueKind::kParameter, true);
  const auto w2 = builder.add_value(
      {.storage = builder.storage(w), .kind = ValueKind::kParameter, .overwrites = w});
  builder.add_op({.kind = "update", .operands = {w}, .results = {w2}});
  Handmade it;
  it.graph = builder.build();
  it.plan = Plan();
  it.plan.alignment_bytes = 64;
  it.plan.instances = {{StorageId(0), 0}, {StorageId(0), 64}};
  it.plan.initial = {InstanceId(0)};
  it.add_op(0, {0});
  it.add_copy(StepKind::kOffload, 0);
  it.add_free(0);
  it.add_copy(StepKind::kPrefetch, 1);
  it.plan.arena_bytes = 128;
  it.plan.live_bytes = 64;
  add_waits(it.graph, it.plan);
  EXPECT_EQ(it.fault(), PlanFault::kResult);
  it.plan.instances[1].address = 0;
  it.plan.arena_bytes = 64;
  add_waits(it.graph, it.plan);
  EXPECT_EQ(it.fault(), PlanFault::kNone);
}

TEST(ValidatePlan, FindsAnInPlaceResultThatTheGraphDoesNotAllow) {
  Handmade it;
  it.plan.steps[kB].taken_over = InstanceId(1);
  EXPECT_EQ(it.fault(), PlanFault::kLifetime);
}

// As Handmade, but c moves down over the place of a, before a comes back where c was.
struct Moved : Handmade {
  Moved() {
    plan.instances[5].address = 128;
    plan.instances.push_back({StorageId(3), 64});
    Step move;
    move.kind = StepKind::kMove;
    move.instance = InstanceId(6);
    move.taken_over = InstanceId(3);
    plan.steps.insert(plan.steps.begin() + kMove, move);
    plan.steps[kD + 1].touched[1] = InstanceId(6);
    plan.steps[kFreeC + 1].instance = InstanceId(6);
    add_waits(graph, plan);
  }
  static constexpr int kMove = kIn;
};

TEST(ValidatePlan, AcceptsAMoveAndCountsItsBytesOnce) {
  const Moved it;
  const PlanVerdict verdict = validate_plan(it.graph, it.plan, 192);
  EXPECT_TRUE(verdict.valid()) << verdict.message;
  EXPECT_EQ(verdict.live_bytes, 192);
  Moved overlapping;  // by a half of its length
  overlapping.plan.alignment_bytes = 32;
  overlapping.plan.instances[6].address = 96;
  overlapping.plan.instances[5].address = 160;
  overlapping.plan.arena_bytes = 224;
  add_waits(overlapping.graph, overlapping.plan);
  EXPECT_EQ(overlapping.fault(224), PlanFault::kNone);
}

TEST(ValidatePlan, FindsEveryWayAMoveCanBeWrong) {
  Moved other;  // into an instance of another storage
  other.plan.steps[Moved::kMove].taken_over = InstanceId(2);
  EXPECT_EQ(other.fault(), PlanFault::kForm);
  Moved none;
  none.plan.steps[Moved::kMove].taken_over = InstanceId();
  EXPECT_EQ(none.fault(), PlanFault::kForm);
  Moved early;  // before c is there
  std::swap(early.plan.steps[Moved::kMove], early.plan.steps[kB]);
  for (Step& step : early.plan.steps) step.waits.clear();
  EXPECT_EQ(early.fault(), PlanFault::kLifetime);
  Moved old;  // d reads where c was
  old.plan.steps[kD + 1].touched[1] = InstanceId(3);
  EXPECT_EQ(old.fault(), PlanFault::kOperand);
  Moved twice;
  twice.plan.steps[kFreeC + 1].instance = InstanceId(3);
  EXPECT_EQ(twice.fault(), PlanFault::kLifetime);
  Moved over;  // onto b, which is still alive
  std::swap(over.plan.steps[Moved::kMove], over.plan.steps[kFreeB]);
  over.plan.instances[6].address = 0;
  add_waits(over.graph, over.plan);
  EXPECT_EQ(over.fault(), PlanFault::kOverlap);
}

// It writes over bytes that a copy reads, and leaves bytes to a copy that writes them.
TEST(ValidatePlan, FindsEveryMissingWaitAroundAMove) { EXPECT_GE(remove_each_wait<Moved>(), 4); }

TEST(ValidatePlan, FindsBadForm) {
  Handmade it;
  it.plan.steps[kD].waits = {kFreeA};
  EXPECT_EQ(it.fault(), PlanFault::kForm);
  it.plan.steps[kD].waits = {kD};
  EXPECT_EQ(it.fault(), PlanFault::kForm);
  Handmade count;
  count.plan.steps[kD].touched.pop_back();
  EXPECT_EQ(count.fault(), PlanFault::kForm);
  Handmade other;
  other.plan.steps[kD].touched[0] = InstanceId(2);
  EXPECT_EQ(other.fault(), PlanFault::kForm);
  Handmade unknown;
  unknown.plan.steps[kFreeC].instance = InstanceId(99);
  EXPECT_EQ(unknown.fault(), PlanFault::kForm);
}

}  // namespace
}  // namespace plimsoll::plan
