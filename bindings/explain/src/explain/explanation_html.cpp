// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <string_view>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/size.h"
#include "plimsoll/explain/explanation.h"

namespace plimsoll::explain {
namespace {

constexpr double kWidth = 960;
constexpr double kHeight = 260;
constexpr double kLeft = 90;
constexpr std::size_t kMostPoints = 2000;
constexpr std::size_t kMostBlocks = 4000;
constexpr std::array<const char*, 6> kColours = {"#4878a8", "#6a9f58", "#c78843",
                                                 "#967bb0", "#5fa3a8", "#b3656b"};

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        // A file may hold any bytes: control characters have no place in a page.
        if (static_cast<unsigned char>(c) >= 0x20 || c == '\n') out += c;
    }
  }
  return out;
}

// Maps times and bytes to the picture.
struct Scale {
  double per_event;
  double per_byte;
  double x(double event) const { return kLeft + event * per_event; }
  double y(double bytes) const { return kHeight - bytes * per_byte; }
};

Scale make_scale(std::int64_t events, std::int64_t most_bytes) {
  return {(kWidth - kLeft) / static_cast<double>(std::max<std::int64_t>(1, events)),
          (kHeight - 10) / static_cast<double>(std::max<std::int64_t>(1, most_bytes))};
}

// A step curve; where there are more moments than points, each point is the most of its moments.
std::string curve(const std::vector<std::int64_t>& bytes, const Scale& scale) {
  std::string points;
  const std::size_t stride = std::max<std::size_t>(1, bytes.size() / kMostPoints);
  for (std::size_t i = 0; i < bytes.size(); i += stride) {
    const std::size_t end = std::min(bytes.size(), i + stride);
    const auto most =
        static_cast<double>(*std::max_element(bytes.begin() + static_cast<std::ptrdiff_t>(i),
                                              bytes.begin() + static_cast<std::ptrdiff_t>(end)));
    points += fmt::format("{:.1f},{:.1f} {:.1f},{:.1f} ", scale.x(static_cast<double>(i)),
                          scale.y(most), scale.x(static_cast<double>(end)), scale.y(most));
  }
  return points;
}

std::string axis(std::int64_t most_bytes, const Scale& scale) {
  std::string out;
  for (int i = 0; i <= 4; ++i) {
    const std::int64_t bytes = most_bytes / 4 * i;
    const double y = scale.y(static_cast<double>(bytes));
    out += fmt::format(
        "<line x1='{}' x2='{}' y1='{:.1f}' y2='{:.1f}' stroke='#ddd'/><text x='{}' y='{:.1f}' "
        "text-anchor='end'>{}</text>\n",
        kLeft, kWidth, y, y, kLeft - 6, y + 4, bytes == 0 ? "0" : format_size(bytes));
  }
  return out;
}

std::string timeline(const Explanation& e) {
  const std::int64_t most = std::max(e.peak_reserved_bytes, e.peak_allocated_bytes);
  const Scale scale = make_scale(e.events, most);
  std::string out = fmt::format("<svg viewBox='0 0 {} {}' role='img'>\n", kWidth, kHeight + 20);
  out += axis(most, scale);
  out += fmt::format("<polyline fill='none' stroke='#999' points='{}'/>\n",
                     curve(e.reserved_after, scale));
  out += fmt::format(
      "<polygon fill='#4878a8' fill-opacity='0.6' points='{:.1f},{:.1f} {}{:.1f},{:.1f}'/>\n",
      kLeft, kHeight, curve(e.allocated_after, scale), kWidth, kHeight);
  const double planned = scale.y(static_cast<double>(e.planned_arena_bytes));
  out += fmt::format(
      "<line x1='{}' x2='{}' y1='{:.1f}' y2='{:.1f}' stroke='#b3382c' stroke-dasharray='6 3'/>\n",
      kLeft, kWidth, planned, planned);
  const double peak = scale.x(static_cast<double>(e.peak_event) + 0.5);
  out += fmt::format("<line x1='{:.1f}' x2='{:.1f}' y1='0' y2='{}' stroke='#333'/>\n", peak, peak,
                     kHeight);
  out += fmt::format("<text x='{}' y='{}'>events 0 to {}; peak at {}</text></svg>\n", kLeft,
                     kHeight + 16, e.events, e.peak_event);
  return out;
}

std::string plan_picture(const Explanation& e) {
  const Scale scale = make_scale(e.events, e.planned_arena_bytes);
  std::vector<std::size_t> order(e.lives.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return e.lives[a].bytes > e.lives[b].bytes;
  });
  order.resize(std::min(order.size(), kMostBlocks));
  std::string out = fmt::format("<svg viewBox='0 0 {} {}' role='img'>\n", kWidth, kHeight + 4);
  out += axis(e.planned_arena_bytes, scale);
  for (const std::size_t i : order) {
    const BlockLife& life = e.lives[i];
    if (life.bytes == 0 || life.time.empty()) continue;
    const double top = static_cast<double>(e.planned_offsets_bytes[i] + life.bytes);
    out += fmt::format(
        "<rect x='{:.1f}' y='{:.1f}' width='{:.1f}' height='{:.2f}' fill='{}' stroke='#fff' "
        "stroke-width='0.3'><title>{} from event {} to {}</title></rect>\n",
        scale.x(static_cast<double>(life.time.begin)), scale.y(top),
        std::max(0.3, static_cast<double>(life.time.length()) * scale.per_event),
        std::max(0.3, static_cast<double>(life.bytes) * scale.per_byte),
        kColours[i % kColours.size()], format_size(life.bytes), life.time.begin, life.time.end);
  }
  return out + "</svg>\n";
}

std::string row(std::string_view name, std::int64_t bytes) {
  return fmt::format("<tr><td>{}</td><td class='n'>{}</td><td class='n'>{}</td></tr>\n", name,
                     bytes, bytes == 0 ? "0" : format_size(bytes));
}

std::string figures(const Explanation& e) {
  std::string out = "<table><tr><th>figure</th><th>bytes</th><th></th></tr>\n";
  out += row("most allocated at one time", e.peak_allocated_bytes);
  out += row("most reserved at one time", e.peak_reserved_bytes);
  out += row("reserved at the peak and not allocated (fragmentation)", e.fragmentation_bytes);
  out += row("least that this order needs, blocks rounded", e.load_bytes);
  out += row("a static plan needs", e.planned_arena_bytes);
  return out + "</table>\n";
}

std::string segments_table(const Explanation& e) {
  std::string out =
      "<table><tr><th>segment</th><th>size</th><th>allocated</th><th>free</th>"
      "<th>largest hole</th><th>blocks</th></tr>\n";
  for (std::size_t i = 0; i < std::min<std::size_t>(e.segments.size(), 50); ++i) {
    const SegmentAtPeak& s = e.segments[i];
    out += fmt::format(
        "<tr><td>{:#x}</td><td class='n'>{}</td><td class='n'>{}</td><td class='n'>{}</td>"
        "<td class='n'>{}</td><td class='n'>{}</td></tr>\n",
        s.addresses.begin, s.addresses.length(), s.allocated_bytes, s.free_bytes(),
        s.largest_hole_bytes, s.blocks);
  }
  return out + "</table>\n";
}

std::string stacks_table(const Snapshot& snapshot, const Explanation& e) {
  std::string out = "<table><tr><th>bytes</th><th>blocks</th><th>where</th></tr>\n";
  for (std::size_t i = 0; i < std::min<std::size_t>(e.stacks.size(), 30); ++i) {
    std::string frames;
    for (const std::string& line : format_stack(snapshot, e.stacks[i].stack))
      frames += escape(line) + "\n";
    if (frames.empty()) frames = "not recorded";
    out +=
        fmt::format("<tr><td class='n'>{}</td><td class='n'>{}</td><td><pre>{}</pre></td></tr>\n",
                    e.stacks[i].bytes, e.stacks[i].blocks, frames);
  }
  return out + "</table>\n";
}

}  // namespace

std::string explanation_html(const Snapshot& snapshot, const Explanation& e,
                             const std::string& title) {
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'><title>{0}</title><style>\n"
      "body{{font:14px sans-serif;margin:2em auto;max-width:1000px;color:#222}}\n"
      "svg{{width:100%;font-size:11px}}table{{border-collapse:collapse;margin:1em 0}}\n"
      "td,th{{padding:2px 10px;text-align:left;border-bottom:1px solid #ddd;vertical-align:top}}\n"
      ".n{{text-align:right;font-variant-numeric:tabular-nums}}pre{{margin:0;max-height:12em;"
      "overflow:auto;white-space:pre-wrap}}\n</style></head><body>\n<h1>{0}</h1>\n"
      "<p>Device {1}, {2} events{3}.</p>\n",
      escape(title), e.device, e.events,
      e.is_truncated ? "; the trace has lost its beginning, so blocks freed without an allocation "
                       "count as alive from the start"
                     : "");
  out += figures(e);
  out += "<h2>Timeline</h2><p>Filled: allocated. Grey line: reserved. Dashed: a static plan.</p>\n";
  out += timeline(e);
  out += "<h2>A static plan</h2><p>Time to the right, addresses upwards.</p>\n";
  out += plan_picture(e);
  out += "<h2>Segments at the peak</h2>\n" + segments_table(e);
  out += "<h2>Who holds the peak</h2>\n" + stacks_table(snapshot, e);
  return out + "</body></html>\n";
}

}  // namespace plimsoll::explain
