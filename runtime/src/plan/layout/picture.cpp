// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/size.h"
#include "plimsoll/plan/layout_io.h"

#include "plan/layout/pieces.h"

namespace plimsoll::plan {
namespace {

constexpr double kLeft = 90;
constexpr double kTop = 40;
constexpr double kMargin = 30;

struct Box {
  Interval time;
  Interval addresses;
  std::size_t owner = 0;
};

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text.substr(0, 200)) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '&') {
      result += "&amp;";
    } else if (c == '<') {
      result += "&lt;";
    } else if (c == '"') {
      result += "&quot;";
    } else {
      result += code < 32 || code >= 127 ? '?' : c;
    }
  }
  return result;
}

std::vector<Box> boxes_of(const LayoutProblem& problem,
                          const std::vector<std::int64_t>& offsets_bytes, std::int32_t arena) {
  std::vector<Box> boxes;
  for (std::size_t i = 0; i < problem.buffers.size(); ++i) {
    if (problem.buffers[i].arena != arena) continue;
    layout_detail::for_each_piece(problem.buffers[i], [&](Interval time, Interval kept) {
      boxes.push_back({time, {offsets_bytes[i] + kept.begin, offsets_bytes[i] + kept.end}, i});
    });
  }
  for (std::size_t i = 0; i < problem.reserved.size(); ++i) {
    const ReservedRange& r = problem.reserved[i];
    if (r.arena == arena && !r.time.empty() && !r.addresses.empty())
      boxes.push_back({r.time, r.addresses, problem.buffers.size() + i});
  }
  return boxes;
}

std::string title_of(const LayoutProblem& problem, const Box& box) {
  const std::size_t i = box.owner;
  const std::string name = i >= problem.buffers.size()
                               ? fmt::format("reserved range {}", i - problem.buffers.size())
                           : i < problem.names.size() ? escaped(problem.names[i])
                                                      : fmt::format("buffer {}", i);
  return fmt::format("{}: {} bytes at {}, live in [{}, {})", name, box.addresses.length(),
                     box.addresses.begin, box.time.begin, box.time.end);
}

// Neighbouring numbers get colours far apart.
std::string colour_of(const LayoutProblem& problem, std::size_t owner) {
  if (owner >= problem.buffers.size()) return "#999999";
  return fmt::format("hsl({},55%,{}%)", owner * 137 % 360, 60 + owner * 7 % 20);
}

void keep_largest(std::vector<Box>& boxes, std::size_t most) {
  if (boxes.size() <= most) return;
  const auto area = [](const Box& b) {
    return static_cast<double>(b.time.length()) * static_cast<double>(b.addresses.length());
  };
  std::stable_sort(boxes.begin(), boxes.end(),
                   [&](const Box& a, const Box& b) { return area(a) > area(b); });
  boxes.resize(most);
}

}  // namespace

LayoutPeak find_layout_peak(const LayoutProblem& problem, std::int32_t arena) {
  LayoutPeak peak;
  std::vector<std::pair<std::int64_t, std::int64_t>> events;  // falls sort before rises
  const auto add = [&](Interval time, std::int64_t bytes) {
    events.emplace_back(time.begin, bytes);
    events.emplace_back(time.end, -bytes);
  };
  for (const LayoutBuffer& b : problem.buffers) {
    if (b.arena == arena)
      layout_detail::for_each_piece(b, [&](Interval t, Interval k) { add(t, k.length()); });
  }
  for (const ReservedRange& r : problem.reserved) {
    if (r.arena == arena && !r.time.empty()) add(r.time, r.addresses.length());
  }
  std::sort(events.begin(), events.end());
  std::int64_t live = 0;
  for (const auto& [time, change] : events) {
    live += change;
    if (live <= peak.load_bytes) continue;
    peak.load_bytes = live;
    peak.time = time;
  }
  std::vector<std::pair<std::int64_t, std::size_t>> held;
  for (std::size_t i = 0; i < problem.buffers.size(); ++i) {
    if (problem.buffers[i].arena != arena) continue;
    layout_detail::for_each_piece(problem.buffers[i], [&](Interval time, Interval kept) {
      if (time.contains(peak.time)) held.emplace_back(-kept.length(), i);
    });
  }
  std::sort(held.begin(), held.end());
  for (const auto& [bytes, index] : held) peak.buffers.push_back(index);
  return peak;
}

std::string draw_layout_svg(const LayoutProblem& problem,
                            const std::vector<std::int64_t>& offsets_bytes,
                            const LayoutPicture& picture) {
  std::vector<Box> boxes = boxes_of(problem, offsets_bytes, picture.arena);
  Interval time{std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()};
  std::int64_t top = 0;
  for (const Box& box : boxes) {
    time = {std::min(time.begin, box.time.begin), std::max(time.end, box.time.end)};
    top = std::max(top, box.addresses.end);
  }
  if (boxes.empty()) time = {0, 1};
  const std::size_t total = boxes.size();
  keep_largest(boxes, picture.most_buffers);
  const double width = picture.width_px - kLeft - kMargin;
  const double height = picture.height_px - kTop - 2 * kMargin;
  const auto begin = static_cast<double>(time.begin);
  const double span = std::max(1.0, static_cast<double>(time.end) - begin);
  const auto x = [&](std::int64_t t) {
    return kLeft + (static_cast<double>(t) - begin) / span * width;
  };
  const auto y = [&](std::int64_t address) {
    return kTop + height -
           static_cast<double>(address) / static_cast<double>(std::max<std::int64_t>(1, top)) *
               height;
  };
  const LayoutPeak peak = find_layout_peak(problem, picture.arena);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
      "{1}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{0}\" height=\"{1}\" "
      "fill=\"white\"/>\n",
      picture.width_px, picture.height_px);
  const auto out = std::back_inserter(svg);
  for (const Box& box : boxes)
    fmt::format_to(out,
                   "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" "
                   "fill=\"{}\" stroke=\"#333\" stroke-width=\"0.3\"><title>{}</title></rect>\n",
                   x(box.time.begin), y(box.addresses.end), x(box.time.end) - x(box.time.begin),
                   y(box.addresses.begin) - y(box.addresses.end), colour_of(problem, box.owner),
                   title_of(problem, box));
  const auto line = [&](double x1, double y1, double x2, double y2, const char* colour) {
    fmt::format_to(out,
                   "<line x1=\"{:.2f}\" y1=\"{:.2f}\" x2=\"{:.2f}\" y2=\"{:.2f}\" stroke=\"{}\" "
                   "stroke-width=\"1.5\" stroke-dasharray=\"6 3\"/>\n",
                   x1, y1, x2, y2, colour);
  };
  line(kLeft, y(top), kLeft + width, y(top), "#000");
  line(kLeft, y(peak.load_bytes), kLeft + width, y(peak.load_bytes), "#c00");
  line(x(peak.time), kTop, x(peak.time), kTop + height, "#c00");
  fmt::format_to(out,
                 "<text x=\"{}\" y=\"20\">top {} bytes ({}); <tspan fill=\"#c00\">load {} "
                 "bytes at time {}</tspan>; {} of {} stretches drawn</text>\n",
                 kLeft, top, format_size(top), peak.load_bytes, peak.time, boxes.size(), total);
  fmt::format_to(out, "<text x=\"{}\" y=\"{}\">time {} to {}</text>\n", kLeft,
                 picture.height_px - kMargin, time.begin, time.end);
  fmt::format_to(out, "<text x=\"8\" y=\"{:.2f}\">0</text>\n<text x=\"8\" y=\"{:.2f}\">{}</text>\n",
                 y(0), y(top) + 12, format_size(top));
  return svg + "</svg>\n";
}

}  // namespace plimsoll::plan
