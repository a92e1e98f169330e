// SPDX-License-Identifier: Apache-2.0
// A plan: what runs when, on which stream, at which address, and what it waits for.
//
// Nouns: Plan, Step, Instance.
//
//     compute   run a | run b | ........ | run c (waits for the fetch) | ...
//     copy out          offload a0 |
//     copy in                        prefetch a1 |
//
// An Instance is a storage's bytes for one stretch of the step: instance 0 of a storage is the
// storage as first written; every recomputation, fetch and move makes another. Liveness, layout and
// races speak of instances only, so offload and recomputation are one transformation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plimsoll/base/id.h"
#include "plimsoll/graph/graph.h"

namespace plimsoll::plan {

using InstanceId = Id<struct InstanceTag>;

enum class StepKind : std::uint8_t { kRun, kRecompute, kOffload, kPrefetch, kMove, kFree };
enum class Stream : std::uint8_t { kCompute, kCopyOut, kCopyIn };
constexpr std::size_t kStreams = 3;
enum class Tier : std::uint8_t { kHost, kFile };

const char* step_kind_name(StepKind kind) noexcept;
const char* stream_name(Stream stream) noexcept;

struct Instance {
  graph::StorageId storage;
  std::int64_t address = 0;  // bytes from the start of the arena, a multiple of the alignment
};

// Steps are issued in the order of the list; each stream runs its own steps in that order. A step
// starts when the step before it on its stream and every step it waits for have ended.
struct Step {
  StepKind kind = StepKind::kRun;
  graph::OpId op;  // of kRun and kRecompute
  // kOffload: what is copied; kPrefetch and kMove: what is written; kFree: what ends. For kRun and
  // kRecompute see `touched`.
  InstanceId instance;
  // kRun, kRecompute: one instance for each of graph.touched(op), in that order. Invalid where a
  // recomputed operator must not write (state that lives across steps): the operator then runs in
  // the form that leaves it alone.
  std::vector<InstanceId> touched;
  // kRun, kRecompute: the instance whose bytes the in-place result takes over, or invalid. kMove:
  // the instance that moves; both places may overlap (then it is copied in parts, from the side it
  // moves to), and its bytes count once. It ends here, without a kFree.
  InstanceId taken_over;
  Tier tier = Tier::kHost;  // of kOffload and kPrefetch
  std::int64_t workspace_bytes = 0;
  std::int64_t workspace_address = 0;
  double cost_ns = 0;               // as planned, copies included
  std::vector<std::int32_t> waits;  // indices of earlier steps on other streams, ascending

  Stream stream() const {
    if (kind == StepKind::kOffload) return Stream::kCopyOut;
    return kind == StepKind::kPrefetch ? Stream::kCopyIn : Stream::kCompute;
  }
};

// Storages that are live from the start have their first instance resident before step 0, except
// those listed in `starts_on_host`. A kFree takes no time: it says that from here on in the list
// the bytes may be given to somebody else, who waits for whoever used them last.
struct Plan {
  std::vector<Instance> instances;
  std::vector<Step> steps;
  std::vector<InstanceId> initial;               // resident before step 0
  std::vector<graph::StorageId> starts_on_host;  // and must be there again at the end
  std::int64_t alignment_bytes = 512;
  std::int64_t arena_bytes = 0;  // highest address in use, the bytes a device must reserve
  std::int64_t live_bytes = 0;   // most live bytes at one step, each size aligned; <= arena_bytes
};

// Whether running `op` again gives the same bits: it says so (kRecomputable), or, in a graph in
// which no op says so, it is neither random nor of effect outside of the graph nor an update.
// Cost: make() is O(ops), the rest O(1).
class Recomputability {
 public:
  static Recomputability make(const graph::Graph& graph);
  bool allows(graph::OpId op) const { return allowed_[op.index()] != 0; }

 private:
  std::vector<std::uint8_t> allowed_;
};

// Fills in every step's `waits`: for each byte touched, the last conflicting steps on the other
// streams, less what another wait or the stream's own order already says. Addresses must be set.
// Cost: O(steps x pieces of address space touched x log). Existing waits are replaced.
void add_waits(const graph::Graph& graph, Plan& plan);

struct PlacementOptions {
  std::int64_t aim_bytes = 0;  // an arena that is good enough; 0: as small as the nodes allow
  std::int64_t nodes = 12000;  // of the layout engine's search; 0: in order of time only
};

// Sets every address so that live instances never overlap, and arena_bytes and live_bytes: in order
// of time, and where that ends above the aim by the layout engine's search. Deterministic.
// Cost: O(steps log steps), then that of layout.h.
void place_instances(const graph::Graph& graph, Plan& plan, const PlacementOptions& options);

// The plan as JSON: instances, steps, totals; stable keys.
std::string plan_to_json(const graph::Graph& graph, const Plan& plan);

}  // namespace plimsoll::plan
