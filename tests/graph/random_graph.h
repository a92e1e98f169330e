// SPDX-License-Identifier: Apache-2.0
// Random graphs with every feature of the IR, for property tests; the same seed gives the same
// graph on every machine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "plimsoll/graph/builder.h"
#include "plimsoll/graph/graph.h"

namespace plimsoll::graph::testing {

struct RandomGraphOptions {
  int ops = 9;
  int max_size = 9;  // bytes of a storage
  bool inplace = true;
  bool workspace = true;
  bool overwrites = true;        // several versions in one storage
  bool unordered_writes = true;  // sums and slices written in any order
  bool multiple_results = true;
  bool live_ends = true;  // inputs that stay, outputs
};

class RandomGraphMaker {
 public:
  RandomGraphMaker(std::uint32_t seed, const RandomGraphOptions& options)
      : random_(seed), options_(options) {}

  Graph make() {
    for (int i = below(3); i >= 0; --i)
      readable_.push_back(builder_.add_tensor(size(), ValueKind::kInput, ends()));
    while (static_cast<int>(builder_.op_count()) < options_.ops) {
      const int kind = below(8);
      if (kind == 0 && options_.unordered_writes) {
        add_sum();
      } else if (kind == 1 && options_.overwrites) {
        add_overwrite();
      } else {
        add_plain();
      }
    }
    return builder_.build();
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<std::uint32_t>(n)); }
  std::int64_t size() { return below(options_.max_size + 1); }
  bool ends() { return options_.live_ends && below(6) == 0; }
  std::int64_t workspace() { return options_.workspace && below(4) == 0 ? size() : 0; }

  ValueId pick() {
    // Prefer what was made lately, so that graphs are deep as well as wide.
    const int count = static_cast<int>(readable_.size());
    const int window = below(2) == 0 ? std::min(count, 3) : count;
    return readable_[static_cast<std::size_t>(count - 1 - below(window))];
  }

  void add_plain() {
    OpSpec spec;
    spec.kind = "plain";
    for (int i = below(3); i >= 0; --i) spec.operands.push_back(pick());
    spec.workspace_bytes = workspace();
    const int results = options_.multiple_results && below(4) == 0 ? below(4) : 1;
    for (int i = 0; i < results; ++i) {
      const bool inplace = options_.inplace && i == 0 && below(2) == 0;
      const std::int64_t bytes = inplace ? storage_bytes(spec.operands[0]) : size();
      spec.results.push_back(builder_.add_tensor(bytes, ValueKind::kActivation, ends()));
      if (inplace) {
        spec.inplace_operand = spec.operands[0];
        spec.inplace_result = spec.results[0];
      }
    }
    builder_.add_op(spec);
    for (const ValueId v : spec.results) readable_.push_back(v);
  }

  // All sizes come from add_tensor and add_value of whole storages, so a value's is its storage's.
  std::int64_t storage_bytes(ValueId v) { return builder_.size_bytes(v); }

  void add_overwrite() {
    const std::size_t at = static_cast<std::size_t>(below(static_cast<int>(readable_.size())));
    const ValueId old = readable_[at];
    if (std::find(unordered_.begin(), unordered_.end(), old) != unordered_.end())
      return add_plain();
    const ValueId next = builder_.add_value({.storage = builder_.storage(old), .overwrites = old});
    OpSpec spec;
    spec.kind = "overwrite";
    if (below(2) == 0) spec.operands.push_back(old);
    const ValueId other = pick();
    if (other != old) spec.operands.push_back(other);
    spec.results = {next};
    builder_.add_op(spec);
    readable_[at] = next;
  }

  void add_sum() {
    const StorageId s = builder_.add_storage(
        {.size_bytes = size(), .live_at_end = ends(), .unordered_writes = true});
    OpSpec reader;
    reader.kind = "sum";
    for (int i = 1 + below(3); i >= 0; --i) {
      const ValueId part = builder_.add_value({.storage = s});
      builder_.add_op({.kind = "part",
                       .operands = {pick()},
                       .results = {part},
                       .workspace_bytes = workspace()});
      reader.operands.push_back(part);
      unordered_.push_back(part);
    }
    const bool inplace = options_.inplace && below(2) == 0;
    reader.results = {builder_.add_tensor(inplace ? storage_bytes(reader.operands[0]) : size(),
                                          ValueKind::kActivation, ends())};
    if (inplace) reader.inplace_operand = reader.operands[0];
    builder_.add_op(reader);
    readable_.push_back(reader.results[0]);
  }

  std::mt19937 random_;
  RandomGraphOptions options_;
  GraphBuilder builder_;
  std::vector<ValueId> readable_;   // the current versions
  std::vector<ValueId> unordered_;  // values in unordered storages
};

inline Graph random_graph(std::uint32_t seed, const RandomGraphOptions& options = {}) {
  return RandomGraphMaker(seed, options).make();
}

// A random topological order.
inline std::vector<OpId> random_order(const Graph& graph, std::mt19937& random) {
  std::vector<std::size_t> waiting(graph.op_count());
  std::vector<OpId> ready;
  for (std::size_t i = 0; i < graph.op_count(); ++i) {
    waiting[i] = graph.predecessors(OpId(i)).size();
    if (waiting[i] == 0) ready.emplace_back(i);
  }
  std::vector<OpId> order;
  while (!ready.empty()) {
    const std::size_t at = random() % ready.size();
    const OpId o = ready[at];
    ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(at));
    order.push_back(o);
    for (const OpId next : graph.successors(o)) {
      if (--waiting[next.index()] == 0) ready.push_back(next);
    }
  }
  return order;
}

}  // namespace plimsoll::graph::testing
