// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>

#include <nlohmann/json.hpp>
#include <spdlog/fmt/fmt.h>

#include "plimsoll/plan/layout_io.h"

namespace plimsoll::plan {
namespace {

using Json = nlohmann::ordered_json;

bool any(const LayoutProblem& problem, bool (*is_set)(const LayoutBuffer&)) {
  return std::any_of(problem.buffers.begin(), problem.buffers.end(), is_set);
}

std::string name_of(const LayoutProblem& problem, std::size_t index) {
  return index < problem.names.size() ? problem.names[index] : fmt::format("{}", index);
}

std::string gaps_of(const LayoutBuffer& b) {
  std::string text;
  for (const LayoutGap& gap : b.gaps) {
    if (!text.empty()) text += ' ';
    text += fmt::format("{}-{}", gap.time.begin, gap.time.end);
    if (!gap.kept.empty()) text += fmt::format("@{}:{}", gap.kept.begin, gap.kept.end);
  }
  return text;
}

Json buffer_json(const LayoutProblem& problem, std::size_t i, std::int64_t offset) {
  const LayoutBuffer& b = problem.buffers[i];
  Json json = {{"id", name_of(problem, i)},
               {"lower", b.lifetime.begin},
               {"upper", b.lifetime.end},
               {"size", b.size_bytes}};
  if (b.alignment_bytes != 1) json["alignment"] = b.alignment_bytes;
  if (b.hint_offset_bytes != kNoOffset) json["hint"] = b.hint_offset_bytes;
  if (b.arena != 0) json["arena"] = b.arena;
  for (const LayoutGap& gap : b.gaps) {
    Json item = {{"lower", gap.time.begin}, {"upper", gap.time.end}};
    if (!gap.kept.empty()) item["window"] = {gap.kept.begin, gap.kept.end};
    json["gaps"].push_back(std::move(item));
  }
  if (offset != kNoOffset) json["offset"] = offset;
  return json;
}

}  // namespace

std::string write_layout_csv(const LayoutProblem& problem,
                             const std::vector<std::int64_t>* offsets_bytes) {
  const bool alignment = any(problem, [](const LayoutBuffer& b) { return b.alignment_bytes != 1; });
  const bool hint =
      any(problem, [](const LayoutBuffer& b) { return b.hint_offset_bytes != kNoOffset; });
  const bool arena = any(problem, [](const LayoutBuffer& b) { return b.arena != 0; });
  const bool gaps = any(problem, [](const LayoutBuffer& b) { return !b.gaps.empty(); });
  const bool offset = offsets_bytes != nullptr || any(problem, [](const LayoutBuffer& b) {
                        return b.fixed_offset_bytes != kNoOffset;
                      });
  std::string text = "id,lower,upper,size";
  if (alignment) text += ",alignment";
  if (hint) text += ",hint";
  if (arena) text += ",arena";
  if (gaps) text += ",gaps";
  if (offset) text += ",offset";
  text += '\n';
  const auto out = std::back_inserter(text);
  for (std::size_t i = 0; i < problem.buffers.size(); ++i) {
    const LayoutBuffer& b = problem.buffers[i];
    fmt::format_to(out, "{},{},{},{}", name_of(problem, i), b.lifetime.begin, b.lifetime.end,
                   b.size_bytes);
    if (alignment) fmt::format_to(out, ",{}", b.alignment_bytes);
    if (hint) fmt::format_to(out, ",{}", b.hint_offset_bytes);
    if (arena) fmt::format_to(out, ",{}", b.arena);
    if (gaps) fmt::format_to(out, ",{}", gaps_of(b));
    if (offset)
      fmt::format_to(out, ",{}",
                     offsets_bytes != nullptr ? (*offsets_bytes)[i] : b.fixed_offset_bytes);
    text += '\n';
  }
  return text;
}

std::string write_layout_json(const LayoutProblem& problem,
                              const std::vector<std::int64_t>* offsets_bytes) {
  Json root;
  for (const LayoutArena& arena : problem.arenas) {
    Json json = Json::object();
    if (!arena.name.empty()) json["name"] = arena.name;
    if (arena.capacity_bytes != kUnlimitedBytes) json["capacity"] = arena.capacity_bytes;
    root["arenas"].push_back(std::move(json));
  }
  for (const ReservedRange& r : problem.reserved)
    root["reserved"].push_back({{"arena", r.arena},
                                {"lower", r.time.begin},
                                {"upper", r.time.end},
                                {"begin", r.addresses.begin},
                                {"end", r.addresses.end}});
  root["buffers"] = Json::array();
  for (std::size_t i = 0; i < problem.buffers.size(); ++i)
    root["buffers"].push_back(buffer_json(
        problem, i,
        offsets_bytes != nullptr ? (*offsets_bytes)[i] : problem.buffers[i].fixed_offset_bytes));
  // Bytes of a name that are no UTF-8 become replacement characters.
  return root.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace plimsoll::plan
