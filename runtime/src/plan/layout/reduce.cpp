// SPDX-License-Identifier: Apache-2.0
#include "plan/layout/reduce.h"

#include <algorithm>
#include <numeric>

#include "plan/layout/pieces.h"

namespace plimsoll::plan::layout_detail {
namespace {

// An item with its pieces in whatever times they were given in.
struct Draft {
  Item item;
  std::vector<Interval> times;
  std::vector<Interval> kept;
};

struct Work {
  std::vector<Draft> drafts;
  std::int64_t base = 0;
};

std::vector<Draft> drafts_of(const LayoutProblem& problem, std::int32_t arena) {
  std::vector<Draft> drafts;
  for (std::size_t i = 0; i < problem.buffers.size(); ++i) {
    const LayoutBuffer& b = problem.buffers[i];
    if (b.arena != arena) continue;
    Draft draft;
    draft.item = {.size = b.size_bytes,
                  .alignment = b.alignment_bytes,
                  .fixed = b.fixed_offset_bytes,
                  .hint = b.hint_offset_bytes,
                  .origin = static_cast<std::int32_t>(i)};
    for_each_piece(b, [&](Interval time, Interval kept) {
      draft.times.push_back(time);
      draft.kept.push_back(kept);
    });
    if (!draft.times.empty()) drafts.push_back(std::move(draft));
  }
  for (std::size_t i = 0; i < problem.reserved.size(); ++i) {
    const ReservedRange& r = problem.reserved[i];
    if (r.arena != arena || r.time.empty() || r.addresses.empty()) continue;
    Draft draft;
    draft.item = {.size = r.addresses.length(),
                  .fixed = r.addresses.begin,
                  .origin = static_cast<std::int32_t>(problem.buffers.size() + i)};
    draft.times = {r.time};
    draft.kept = {{0, draft.item.size}};
    drafts.push_back(std::move(draft));
  }
  return drafts;
}

// Divides every length by their common divisor. Offsets of canonical layouts are sums of sizes
// rounded up to alignments, so that nothing is lost.
std::int64_t scale(std::vector<Draft>& drafts) {
  std::int64_t unit = 0;
  for (const Draft& d : drafts) {
    unit = std::gcd(unit, d.item.size);
    if (d.item.alignment > 1) unit = std::gcd(unit, d.item.alignment);
    if (d.item.fixed > 0) unit = std::gcd(unit, d.item.fixed);
    for (const Interval& kept : d.kept) unit = std::gcd(std::gcd(unit, kept.begin), kept.end);
  }
  if (unit <= 1) return 1;
  for (Draft& d : drafts) {
    d.item.size /= unit;
    d.item.alignment = std::max<std::int64_t>(1, d.item.alignment / unit);
    if (d.item.fixed > 0) d.item.fixed /= unit;
    d.item.hint = d.item.hint >= 0 && d.item.hint % unit == 0 ? d.item.hint / unit : -1;
    for (Interval& kept : d.kept) kept = {kept.begin / unit, kept.end / unit};
  }
  return unit;
}

// Replaces times by section numbers: a new section opens at the first begin after an end. Returns
// the number of sections.
std::int32_t compress(std::vector<Draft>& drafts) {
  struct Event {
    std::int64_t time;
    bool begins;
    std::int32_t draft;
    std::int32_t piece;
  };
  std::vector<Event> events;
  for (std::size_t d = 0; d < drafts.size(); ++d) {
    for (std::size_t p = 0; p < drafts[d].times.size(); ++p) {
      const auto id = static_cast<std::int32_t>(d);
      const auto piece = static_cast<std::int32_t>(p);
      events.push_back({drafts[d].times[p].begin, true, id, piece});
      events.push_back({drafts[d].times[p].end, false, id, piece});
    }
  }
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return a.time != b.time ? a.time < b.time : a.begins < b.begins;
  });
  std::int32_t section = 0;
  bool has_begun = false;
  for (const Event& e : events) {
    Interval& time =
        drafts[static_cast<std::size_t>(e.draft)].times[static_cast<std::size_t>(e.piece)];
    if (e.begins) {
      has_begun = true;
      time.begin = section;
    } else {
      section += has_begun ? 1 : 0;
      has_begun = false;
      time.end = section;
    }
  }
  return section;
}

Part make_part(const Work& work, std::int32_t sections) {
  Part part;
  part.base = work.base;
  Instance& instance = part.instance;
  instance.sections = sections;
  for (const Draft& d : work.drafts) {
    Item item = d.item;
    item.piece_begin = static_cast<std::int32_t>(instance.pieces.size());
    for (std::size_t p = 0; p < d.times.size(); ++p) {
      instance.pieces.push_back({static_cast<std::int32_t>(d.times[p].begin),
                                 static_cast<std::int32_t>(d.times[p].end), d.kept[p].begin,
                                 d.kept[p].end});
    }
    item.piece_end = static_cast<std::int32_t>(instance.pieces.size());
    instance.items.push_back(item);
  }
  instance.classify();
  for (const std::int64_t load : instance.section_loads()) part.load = std::max(part.load, load);
  return part;
}

// Splits at sections boundaries that no item spans (an item with gaps spans its whole hull).
// Returns one group where there is no such boundary.
std::vector<std::vector<Draft>> split(std::vector<Draft>& drafts, std::int32_t sections) {
  std::vector<std::int32_t> spans(static_cast<std::size_t>(sections) + 1, 0);
  for (const Draft& d : drafts) {
    ++spans[static_cast<std::size_t>(d.times.front().begin) + 1];
    --spans[static_cast<std::size_t>(d.times.back().end)];
  }
  std::vector<std::int32_t> group_of(static_cast<std::size_t>(sections), 0);
  std::int32_t groups = 0;
  std::int32_t open = 0;
  for (std::size_t s = 1; s < group_of.size(); ++s) {
    open += spans[s];
    groups += open == 0 ? 1 : 0;
    group_of[s] = groups;
  }
  std::vector<std::vector<Draft>> result(static_cast<std::size_t>(groups) + 1);
  for (Draft& d : drafts) {
    const auto group = group_of[static_cast<std::size_t>(d.times.front().begin)];
    result[static_cast<std::size_t>(group)].push_back(std::move(d));
  }
  return result;
}

bool may_strip(const std::vector<Draft>& drafts) {
  return std::none_of(drafts.begin(), drafts.end(), [](const Draft& d) {
    return d.item.fixed >= 0 || d.item.alignment != 1 || d.item.hint >= 0;
  });
}

// Moves the items that live in every section to the bottom. Returns whether there were any.
bool strip(Work& work, std::int32_t sections, Reduction& reduction) {
  const auto spans_all = [&](const Draft& d) {
    return d.times.size() == 1 && d.times[0].begin == 0 && d.times[0].end == sections &&
           d.kept[0].length() == d.item.size;
  };
  if (!may_strip(work.drafts)) return false;
  std::vector<Draft> rest;
  for (Draft& d : work.drafts) {
    if (spans_all(d)) {
      reduction.placed.emplace_back(d.item.origin, work.base);
      work.base += d.item.size;
    } else {
      rest.push_back(std::move(d));
    }
  }
  const bool any = rest.size() != work.drafts.size();
  work.drafts = std::move(rest);
  reduction.placed_top = std::max(reduction.placed_top, work.base);
  return any;
}

}  // namespace

Reduction reduce(const LayoutProblem& problem, std::int32_t arena, bool enabled) {
  Reduction reduction;
  std::vector<Work> todo(1);
  todo[0].drafts = drafts_of(problem, arena);
  if (enabled) reduction.unit_bytes = scale(todo[0].drafts);
  while (!todo.empty()) {
    Work work = std::move(todo.back());
    todo.pop_back();
    if (work.drafts.empty()) continue;
    const std::int32_t sections = compress(work.drafts);
    if (!enabled) {
      reduction.parts.push_back(make_part(work, sections));
      continue;
    }
    std::vector<std::vector<Draft>> groups = split(work.drafts, sections);
    if (groups.size() > 1) {
      // Pushed backwards, so that parts come out in order of time.
      for (auto group = groups.rbegin(); group != groups.rend(); ++group)
        todo.push_back({std::move(*group), work.base});
      continue;
    }
    work.drafts = std::move(groups[0]);
    if (strip(work, sections, reduction)) {
      todo.push_back(std::move(work));
    } else {
      reduction.parts.push_back(make_part(work, sections));
    }
  }
  return reduction;
}

}  // namespace plimsoll::plan::layout_detail
