// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/train/measure.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <c10/util/Exception.h>
#include <spdlog/fmt/fmt.h>

#include "plimsoll/allocator.h"
#include "plimsoll/base/bytes.h"
#include "plimsoll/base/error.h"

namespace plimsoll::train {
namespace {

// The third step is the second of a known sequence, whose moves differ from the first's.
constexpr int kSteps = 3;

struct Attempt {
  bool works = false;
  SessionReport report;
};

Attempt attempt(const TrainOptions& options, const Data& data,
                const SessionOptions& session_options, const StopCheck& check) {
  Trainer trainer(options, data);
  Session session(session_options);
  Attempt result;
  try {
    for (int step = 0; step < kSteps; ++step) {
      if (check) check();
      step_inside(trainer, session);
    }
    result.works = true;
  } catch (const DeviceOutOfMemory&) {
    result.works = false;
  }
  result.report = session.report();
  return result;
}

// The allocation that made the peak: of all that lived then the last.
PeakOwner newest_at_peak() {
  PeakOwner newest;
  for (const PeakOwner& owner : peak_owners(std::numeric_limits<std::size_t>::max()))
    if (owner.ordinal >= newest.ordinal) newest = owner;
  return newest;
}

// What `work` returns; an error of LibTorch's about memory says whose memory it was.
template <typename Work>
auto with_typed_shortage(const Session& session, const Work& work) {
  try {
    return work();
  } catch (const c10::OutOfMemoryError& error) {
    const SessionReport report = session.report();
    // The session names the operator that lacked room in the budget; without one it was the host.
    if (report.shortage_op.empty()) throw HostOutOfMemory(error.what_without_backtrace(), {});
    throw DeviceOutOfMemory(report.shortage_op, {.requested_bytes = report.shortage_bytes,
                                                 .live_bytes = report.persistent_bytes,
                                                 .limit_bytes = report.budget_bytes,
                                                 .largest_free_bytes = 0});
  }
}

}  // namespace

float step_inside(Trainer& trainer, Session& session) {
  return with_typed_shortage(session, [&] { return trainer.step(&session); });
}

double evaluate_inside(Trainer& trainer, Session& session, const data::Dataset& data,
                       const StopCheck& check) {
  return with_typed_shortage(session,
                             [&] { return trainer.evaluate(data, &session, data.count(), check); });
}

StockMeasure measure_stock(const TrainOptions& options, const Data& data, const StopCheck& check) {
  install_allocator({});
  const std::int64_t before = allocator_statistics().live_bytes;
  StockMeasure measure;
  {
    Trainer trainer(options, data);
    for (int step = 0; step < kSteps; ++step) {
      if (check) check();
      trainer.step();
      // The first step holds what libraries allocate once; the steps after it repeat.
      if (step == 0) reset_allocator_statistics();
    }
    const AllocatorStatistics statistics = allocator_statistics();
    measure.peak_bytes = statistics.peak_bytes - before;
    measure.peak_op = statistics.peak_op;
    measure.peak_op_bytes = newest_at_peak().bytes;
    measure.persistent_bytes = statistics.live_bytes - before;
  }
  return measure;
}

MinimumBudget find_minimum_budget(const TrainOptions& options, const Data& data,
                                  const SessionOptions& session, std::int64_t stock_peak_bytes,
                                  const StopCheck& check) {
  SessionOptions tried = session;
  tried.record_events = false;
  tried.budget_bytes = checked_add(checked_multiply(stock_peak_bytes, 2), mib(64));
  const Attempt generous = attempt(options, data, tried, check);
  if (!generous.works) {
    throw DeviceOutOfMemory(generous.report.shortage_op,
                            {.requested_bytes = generous.report.shortage_bytes,
                             .live_bytes = 0,
                             .limit_bytes = tried.budget_bytes,
                             .largest_free_bytes = 0});
  }
  MinimumBudget found;
  found.lower_bound_bytes = generous.report.lower_bound_bytes;
  found.pinned_by = generous.report.pinned_by;
  const auto works = [&](std::int64_t budget) {
    tried.budget_bytes = budget;
    return attempt(options, data, tried, check).works;
  };
  // Upwards from the bound in growing strides, then down again by halves to one part in 100.
  std::int64_t failing = 0;
  std::int64_t working = align_up(std::max<std::int64_t>(found.lower_bound_bytes, 64), 64);
  for (std::int64_t stride = working / 64 + 64; !works(working); stride *= 2) {
    if (working >= generous.report.budget_bytes) break;  // that much is known to work
    failing = working;
    working = std::min(align_up(working + stride, 64), generous.report.budget_bytes);
  }
  while (failing > 0 && working - failing > working / 100 + 128) {
    const std::int64_t middle = align_up(failing + (working - failing) / 2, 64);
    (works(middle) ? working : failing) = middle;
  }
  found.budget_bytes = working;
  return found;
}

}  // namespace plimsoll::train
