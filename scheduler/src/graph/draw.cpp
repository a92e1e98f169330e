// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/graph/draw.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <vector>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/size.h"

namespace plimsoll::graph {
namespace {

constexpr double kWidth = 960;
constexpr double kHeight = 420;
constexpr double kLeft = 86;
constexpr double kRight = 20;
constexpr double kTop = 46;
constexpr double kBottom = 44;
constexpr std::size_t kMaxColumns = 2000;
constexpr std::array<std::string_view, 4> kColours = {"#0b6e99", "#c4681b", "#6a8f3c", "#7a5195"};

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (static_cast<unsigned char>(c) >= 0x20) {
      out += c;
    }
  }
  return out;
}

std::string value_name(const Graph& graph, ValueId v) {
  return graph.name(v).empty() ? fmt::format("value {}", v.value()) : std::string(graph.name(v));
}

// Maps steps and bytes to the picture's coordinates.
struct Scale {
  double steps = 1;
  double bytes = 1;
  double x(double step) const { return kLeft + (kWidth - kLeft - kRight) * step / steps; }
  double y(double level) const {
    return kHeight - kBottom - (kHeight - kTop - kBottom) * level / bytes;
  }
};

// The outline of a curve: while each step runs, then after it.
std::string path_of(const MemoryProfile& profile, const Scale& scale) {
  const std::size_t steps = profile.during_bytes.size();
  const std::size_t stride = (steps + kMaxColumns - 1) / kMaxColumns;
  std::string path =
      fmt::format("M{:.1f} {:.1f}", scale.x(0), scale.y(static_cast<double>(profile.start_bytes)));
  for (std::size_t first = 0; first < steps; first += stride) {
    const std::size_t last = std::min(steps, first + stride);
    std::int64_t high = 0;
    for (std::size_t i = first; i < last; ++i) high = std::max(high, profile.during_bytes[i]);
    const double y = scale.y(static_cast<double>(high));
    fmt::format_to(std::back_inserter(path), "L{:.1f} {:.1f}L{:.1f} {:.1f}",
                   scale.x(static_cast<double>(first)), y, scale.x(static_cast<double>(last)), y);
  }
  fmt::format_to(
      std::back_inserter(path), "L{:.1f} {:.1f}", scale.x(static_cast<double>(steps)),
      scale.y(static_cast<double>(steps == 0 ? profile.start_bytes : profile.after_bytes.back())));
  return path;
}

std::string peak_place(const Graph& graph, const DrawnOrder& drawn, const MemoryProfile& profile) {
  if (profile.peak_step < 0) return "before the first step";
  const OpId o = drawn.order[static_cast<std::size_t>(profile.peak_step)];
  return fmt::format("at step {}, op {} ({})", profile.peak_step, o.value(), graph.name(o));
}

void draw_level(std::string& svg, const Scale& scale, std::int64_t bytes, std::string_view dashes,
                std::string_view label) {
  const double y = scale.y(static_cast<double>(bytes));
  fmt::format_to(std::back_inserter(svg),
                 "<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#555\" "
                 "stroke-dasharray=\"{}\"/>\n<text x=\"{:.1f}\" y=\"{:.1f}\" "
                 "text-anchor=\"end\">{} {}</text>\n",
                 kLeft, kWidth - kRight, y, y, dashes, kWidth - kRight - 4, y + 14, label,
                 format_size(bytes));
}

void draw_axes(std::string& svg, const Scale& scale, std::size_t steps) {
  constexpr int kTicks = 5;
  for (int i = 0; i <= kTicks; ++i) {
    const double bytes = scale.bytes * i / kTicks;
    fmt::format_to(std::back_inserter(svg),
                   "<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\" "
                   "stroke=\"#e4e4e4\"/>\n<text x=\"{:.1f}\" y=\"{:.1f}\" "
                   "text-anchor=\"end\">{}</text>\n",
                   kLeft, kWidth - kRight, scale.y(bytes), scale.y(bytes), kLeft - 6,
                   scale.y(bytes) + 4, format_size(static_cast<std::int64_t>(bytes)));
    const auto step = static_cast<std::int64_t>(static_cast<double>(steps) * i / kTicks);
    fmt::format_to(std::back_inserter(svg),
                   "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
                   scale.x(static_cast<double>(step)), kHeight - kBottom + 18, step);
  }
  fmt::format_to(std::back_inserter(svg),
                 "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">step</text>\n",
                 (kLeft + kWidth - kRight) / 2, kHeight - 8);
}

void draw_order(std::string& svg, const Scale& scale, const Graph& graph, const DrawnOrder& drawn,
                const MemoryProfile& profile, std::size_t index) {
  const std::string_view colour = kColours[index % kColours.size()];
  fmt::format_to(std::back_inserter(svg),
                 "<path d=\"{}\" fill=\"{}\" fill-opacity=\"{}\" stroke=\"{}\" "
                 "stroke-width=\"1.5\"/>\n",
                 path_of(profile, scale), index == 0 ? colour : "none", index == 0 ? 0.12 : 0.0,
                 colour);
  fmt::format_to(std::back_inserter(svg),
                 "<circle class=\"peak\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\"/>\n",
                 scale.x(static_cast<double>(profile.peak_step) + 0.5),
                 scale.y(static_cast<double>(profile.peak_bytes)), colour);
  fmt::format_to(std::back_inserter(svg),
                 "<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"{}\">{}: peak {} {}</text>\n", kLeft,
                 18.0 + 16.0 * static_cast<double>(index), colour, escape(drawn.label),
                 format_size(profile.peak_bytes), escape(peak_place(graph, drawn, profile)));
}

std::vector<MemoryProfile> profiles_of(const Graph& graph, std::span<const DrawnOrder> orders) {
  std::vector<MemoryProfile> profiles;
  for (const DrawnOrder& drawn : orders) profiles.push_back(memory_profile(graph, drawn.order));
  return profiles;
}

std::string live_table(const Graph& graph, const DrawnOrder& drawn, const MemoryProfile& profile) {
  if (profile.peak_step < 0) return "";
  std::vector<StorageId> live =
      live_storages(graph, drawn.order, static_cast<std::size_t>(profile.peak_step));
  std::stable_sort(live.begin(), live.end(), [&graph](StorageId a, StorageId b) {
    return graph.size_bytes(a) > graph.size_bytes(b);
  });
  std::string rows;
  constexpr std::size_t kMaxRows = 100;
  for (std::size_t i = 0; i < live.size() && i < kMaxRows; ++i) {
    const ValueId v = graph.values(live[i]).front();
    const OpId producer = graph.producer(v);
    rows += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                        escape(value_name(graph, v)), graph.size_bytes(live[i]),
                        value_kind_name(graph.kind(v)),
                        producer.valid() ? escape(graph.name(producer)) : "the start");
  }
  const OpId at = drawn.order[static_cast<std::size_t>(profile.peak_step)];
  return fmt::format(
      "<h2>Live at the peak</h2>\n<p>{} storages and {} bytes of workspace.</p>\n<table><tr>"
      "<th>tensor</th><th>bytes</th><th>kind</th><th>made by</th></tr>\n{}</table>\n",
      live.size(), graph.workspace_bytes(at), rows);
}

std::string dot_label(std::string_view name) {
  std::string label;
  for (const char c : name) {
    if (c == '"' || c == '\\') label += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) label += c;
  }
  return label;
}

}  // namespace

std::string write_dot(const Graph& graph) {
  std::string dot = "digraph plimsoll {\n rankdir=TB; node [shape=box, fontname=sans];\n";
  for (std::size_t i = 0; i < graph.op_count(); ++i) {
    std::int64_t bytes = 0;
    for (const ValueId v : graph.results(OpId(i))) bytes += graph.size_bytes(v);
    fmt::format_to(std::back_inserter(dot), " o{} [label=\"{} {}\\n{}\"];\n", i, i,
                   dot_label(graph.name(OpId(i))), format_size(bytes));
  }
  for (std::size_t i = 0; i < graph.op_count(); ++i) {
    const OpId o(i);
    const auto kinds = graph.predecessor_kinds(o);
    const auto before = graph.predecessors(o);
    for (std::size_t k = 0; k < before.size(); ++k) {
      std::int64_t bytes = 0;
      for (const ValueId v : graph.operands(o)) {
        if (graph.producer(v) == before[k]) bytes += graph.size_bytes(v);
      }
      const bool data = kinds[k] == EdgeKind::kData;
      fmt::format_to(std::back_inserter(dot), " o{} -> o{} [label=\"{}\"{}];\n", before[k].value(),
                     i, data ? format_size(bytes) : edge_kind_name(kinds[k]),
                     data ? "" : ", style=dashed");
    }
  }
  return dot + "}\n";
}

std::string write_svg(const Graph& graph, std::span<const DrawnOrder> orders,
                      const DrawingOptions& options) {
  const std::vector<MemoryProfile> profiles = profiles_of(graph, orders);
  Scale scale;
  scale.steps = std::max<double>(1, static_cast<double>(graph.op_count()));
  for (const MemoryProfile& profile : profiles)
    scale.bytes = std::max(scale.bytes, static_cast<double>(profile.peak_bytes));
  scale.bytes = std::max(scale.bytes, static_cast<double>(options.budget_bytes)) * 1.05;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" width=\"{}\" height=\"{}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<title>{}</title>\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      kWidth, kHeight, kWidth, kHeight, escape(options.title));
  draw_axes(svg, scale, graph.op_count());
  for (std::size_t i = orders.size(); i-- > 0;)
    draw_order(svg, scale, graph, orders[i], profiles[i], i);
  if (options.lower_bound_bytes >= 0)
    draw_level(svg, scale, options.lower_bound_bytes, "6 4", "lower bound");
  if (options.budget_bytes >= 0) draw_level(svg, scale, options.budget_bytes, "2 3", "budget");
  return svg + "</svg>\n";
}

std::string write_html(const Graph& graph, std::span<const DrawnOrder> orders,
                       const DrawingOptions& options) {
  const std::vector<MemoryProfile> profiles = profiles_of(graph, orders);
  std::string rows;
  for (std::size_t i = 0; i < orders.size(); ++i) {
    rows += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                        escape(orders[i].label), profiles[i].peak_bytes,
                        format_size(profiles[i].peak_bytes),
                        escape(peak_place(graph, orders[i], profiles[i])));
  }
  if (options.lower_bound_bytes >= 0)
    rows += fmt::format("<tr><td>lower bound</td><td>{}</td><td>{}</td><td></td></tr>\n",
                        options.lower_bound_bytes, format_size(options.lower_bound_bytes));
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>\n"
      "<style>body{{font-family:sans-serif;margin:2em;max-width:62em}}"
      "table{{border-collapse:collapse}}td,th{{padding:.2em .8em;border-bottom:1px solid #ddd;"
      "text-align:left}}svg{{max-width:100%;height:auto}}</style></head><body>\n"
      "<h1>{0}</h1>\n<p>{1} ops, {2} values, {3} storages.</p>\n{4}\n<h2>Peaks</h2>\n"
      "<table><tr><th>order</th><th>bytes</th><th></th><th>where</th></tr>\n{5}</table>\n{6}"
      "</body></html>\n",
      escape(options.title), graph.op_count(), graph.value_count(), graph.storage_count(),
      write_svg(graph, orders, options), rows,
      orders.empty() ? "" : live_table(graph, orders[0], profiles[0]));
}

}  // namespace plimsoll::graph
