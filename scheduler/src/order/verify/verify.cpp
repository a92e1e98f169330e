// SPDX-License-Identifier: Apache-2.0
// The independent checker: replay and cut. Its search is in search.cpp. Nothing here uses
// memory.h or a solver's code, so that a mistake there cannot hide here.
#include <algorithm>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/order/certificate.h"

#include "order/verify/cut.h"
#include "order/verify/search.h"

namespace plimsoll::order {
namespace {

using graph::Graph;
using graph::OpId;
using graph::StorageId;

// Says what is wrong with the order, or nothing.
std::string order_problem(const Graph& graph, const std::vector<std::int32_t>& order) {
  if (order.size() != graph.op_count())
    return fmt::format("the order has {} ops, the graph {}", order.size(), graph.op_count());
  std::vector<std::int64_t> step_of(order.size(), -1);
  for (std::size_t step = 0; step < order.size(); ++step) {
    const auto op = static_cast<std::size_t>(order[step]);
    if (order[step] < 0 || op >= order.size())
      return fmt::format("step {} names op {}, which does not exist", step, order[step]);
    if (step_of[op] >= 0)
      return fmt::format("op {} runs at step {} and at step {}", op, step_of[op], step);
    step_of[op] = static_cast<std::int64_t>(step);
  }
  for (std::size_t op = 0; op < order.size(); ++op) {
    for (const OpId before : graph.predecessors(OpId(op))) {
      if (step_of[before.index()] > step_of[op])
        return fmt::format("op {} runs before op {}, which it depends on", op, before.value());
    }
  }
  return "";
}

// The peak by definition: each storage occupies an interval of half-steps (2k while step k runs,
// 2k + 1 after it); add the sizes up over time.
std::int64_t replay_peak(const Graph& graph, const std::vector<std::int32_t>& order) {
  const auto steps = static_cast<std::int64_t>(order.size());
  std::vector<std::int64_t> step_of(order.size());
  for (std::int64_t step = 0; step < steps; ++step)
    step_of[static_cast<std::size_t>(order[static_cast<std::size_t>(step)])] = step;
  // change[h + 1] is what begins at half-step h; half-step -1 is before the first step.
  std::vector<std::int64_t> change(static_cast<std::size_t>(2 * steps + 3), 0);
  const auto occupy = [&change](std::int64_t from, std::int64_t to, std::int64_t bytes) {
    if (to <= from) return;
    change[static_cast<std::size_t>(from + 1)] += bytes;
    change[static_cast<std::size_t>(to + 1)] -= bytes;
  };
  for (std::size_t i = 0; i < graph.storage_count(); ++i) {
    const StorageId s(i);
    std::int64_t from = 2 * steps;
    for (const OpId o : graph.births(s)) from = std::min(from, 2 * step_of[o.index()]);
    if (graph.live_at_start(s)) from = -1;
    std::int64_t to = -1;
    for (const OpId o : graph.touchers(s)) {
      const bool overwrites = graph.inplace_storage(o) == s;
      to = std::max(to, 2 * step_of[o.index()] + (overwrites ? 0 : 1));
    }
    if (graph.live_at_end(s)) to = 2 * steps + 1;
    occupy(from, to, graph.size_bytes(s));
  }
  for (std::size_t i = 0; i < order.size(); ++i)
    occupy(2 * step_of[i], 2 * step_of[i] + 1, graph.workspace_bytes(OpId(i)));
  std::int64_t level = 0;
  std::int64_t peak = 0;
  for (const std::int64_t delta : change) {
    level += delta;
    peak = std::max(peak, level);
  }
  return peak;
}

std::int64_t start_end_bound(const Graph& graph) {
  std::int64_t start = 0;
  std::int64_t end = 0;
  for (std::size_t i = 0; i < graph.storage_count(); ++i) {
    const StorageId s(i);
    const bool used = !graph.touchers(s).empty();
    if (graph.live_at_start(s) && (used || graph.live_at_end(s))) start += graph.size_bytes(s);
    if (graph.live_at_end(s)) end += graph.size_bytes(s);
  }
  return std::max(start, end);
}

void verify_bound(const Graph& graph, const Certificate& certificate, const VerifyLimits& limits,
                  Verdict& verdict) {
  const std::int64_t claim = certificate.lower_bound_bytes;
  verdict.bound_checked = true;
  std::int64_t found = start_end_bound(graph);
  if (certificate.kind == Certificate::Kind::kCut) {
    if (certificate.op < 0 || static_cast<std::size_t>(certificate.op) >= graph.op_count()) {
      verdict.reason = fmt::format("the cut names op {}, which does not exist", certificate.op);
      return;
    }
    found = std::max(found, detail::cheapest_state_running(graph, OpId(certificate.op)));
  }
  if (certificate.kind != Certificate::Kind::kExhausted) {
    verdict.bound_valid = claim <= found;
    if (!verdict.bound_valid)
      verdict.reason = fmt::format("the bound claims {} bytes, its proof shows {}", claim, found);
    return;
  }
  const detail::Rejection rejection = detail::reject_below(graph, certificate, limits);
  verdict.states = rejection.states;
  verdict.bound_checked = rejection.outcome != detail::Rejection::Outcome::kLimit;
  verdict.bound_valid = rejection.outcome == detail::Rejection::Outcome::kRejected;
  verdict.reason = rejection.reason;
}

}  // namespace

Verdict verify(const Graph& graph, const Certificate& certificate, const VerifyLimits& limits) {
  Verdict verdict;
  verdict.lower_bound_bytes = certificate.lower_bound_bytes;
  if (certificate.graph_digest != graph_digest(graph)) {
    verdict.reason = "the certificate was made for another graph";
    return verdict;
  }
  verdict.reason = order_problem(graph, certificate.order);
  if (!verdict.reason.empty()) return verdict;
  verdict.peak_bytes = replay_peak(graph, certificate.order);
  verdict.peak_valid = verdict.peak_bytes == certificate.peak_bytes;
  if (!verdict.peak_valid) {
    verdict.reason = fmt::format("the peak claims {} bytes, the replay shows {}",
                                 certificate.peak_bytes, verdict.peak_bytes);
    return verdict;
  }
  if (certificate.lower_bound_bytes > certificate.peak_bytes) {
    verdict.bound_checked = true;
    verdict.reason = fmt::format("the bound of {} bytes exceeds the peak of {}",
                                 certificate.lower_bound_bytes, certificate.peak_bytes);
    return verdict;
  }
  verify_bound(graph, certificate, limits, verdict);
  return verdict;
}

}  // namespace plimsoll::order
