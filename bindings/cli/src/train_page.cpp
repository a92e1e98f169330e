// SPDX-License-Identifier: Apache-2.0
#include "train_page.h"

#include <algorithm>
#include <cmath>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/size.h"

namespace plimsoll::cli {
namespace {

constexpr double kWidth = 640;
constexpr double kHeight = 220;
constexpr double kMargin = 48;

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '&') {
      safe += "&amp;";
    } else if (c == '<') {
      safe += "&lt;";
    } else if (c == '>') {
      safe += "&gt;";
    } else {
      safe += c;
    }
  }
  return safe;
}

struct Curve {
  std::string name;
  std::string colour;
  std::vector<double> values;
};

struct Range {
  double low = 0, high = 1;
};

Range range_of(const std::vector<Curve>& curves) {
  Range range{HUGE_VAL, -HUGE_VAL};
  for (const Curve& curve : curves) {
    for (const double value : curve.values) {
      if (!std::isfinite(value)) continue;
      range.low = std::min(range.low, value);
      range.high = std::max(range.high, value);
    }
  }
  if (range.low > range.high) return {0, 1};
  if (range.low == range.high) return {range.low - 0.5, range.high + 0.5};
  return range;
}

std::string polyline(const Curve& curve, const Range& range) {
  std::string points;
  const double last = std::max<double>(1, static_cast<double>(curve.values.size()) - 1);
  for (std::size_t i = 0; i < curve.values.size(); ++i) {
    if (!std::isfinite(curve.values[i])) continue;
    const double x = kMargin + (kWidth - 2 * kMargin) * static_cast<double>(i) / last;
    const double share = (curve.values[i] - range.low) / (range.high - range.low);
    points += fmt::format("{:.1f},{:.1f} ", x, kHeight - kMargin - (kHeight - 2 * kMargin) * share);
  }
  return fmt::format("<polyline fill='none' stroke='{}' stroke-width='1.5' points='{}'/>",
                     curve.colour, points);
}

std::string chart(const std::string& title, const std::vector<Curve>& curves,
                  std::string (*label)(double)) {
  const Range range = range_of(curves);
  std::string svg = fmt::format(
      "<h2>{}</h2><svg viewBox='0 0 {} {}' width='{}'><rect x='{}' y='{}' width='{}' height='{}' "
      "fill='none' stroke='#bbb'/>",
      escaped(title), kWidth, kHeight, kWidth, kMargin, kMargin, kWidth - 2 * kMargin,
      kHeight - 2 * kMargin);
  svg += fmt::format("<text x='2' y='{}'>{}</text><text x='2' y='{}'>{}</text>", kMargin + 4,
                     label(range.high), kHeight - kMargin + 4, label(range.low));
  double x = kMargin;
  std::size_t steps = 0;
  for (const Curve& curve : curves) {
    if (curve.values.empty()) continue;
    svg += polyline(curve, range);
    svg += fmt::format("<text x='{}' y='{}' fill='{}'>{}</text>", x, kMargin - 10, curve.colour,
                       escaped(curve.name));
    x += 160;
    steps = std::max(steps, curve.values.size());
  }
  svg += fmt::format("<text x='{}' y='{}'>{} steps</text></svg>", kWidth - kMargin - 60,
                     kHeight - kMargin + 18, steps);
  return svg;
}

std::string number_label(double value) { return fmt::format("{:.3g}", value); }
std::string bytes_label(double value) {
  return value < 1 ? "0" : format_size(static_cast<std::int64_t>(value));
}

std::string bar(const std::string& name, std::int64_t bytes, std::int64_t longest, int row,
                const std::string& colour) {
  const double length = 420.0 * static_cast<double>(bytes) / static_cast<double>(longest);
  return fmt::format(
      "<text x='2' y='{}'>{}</text><rect x='110' y='{}' width='{:.1f}' height='16' fill='{}'/>"
      "<text x='{:.1f}' y='{}'>{}</text>",
      row * 26 + 16, escaped(name), row * 26 + 4, length, colour, 116 + length, row * 26 + 16,
      format_size(bytes));
}

std::string bars(const TrainPage& page) {
  const std::int64_t longest =
      std::max({page.peak_bytes, page.budget_bytes, page.stock_peak_bytes, std::int64_t{1}});
  std::string svg = "<h2>Peak memory</h2><svg viewBox='0 0 640 84' width='640'>";
  int row = 0;
  if (page.stock_peak_bytes > 0) svg += bar("stock", page.stock_peak_bytes, longest, row++, "#c44");
  if (page.budget_bytes > 0) svg += bar("budget", page.budget_bytes, longest, row++, "#999");
  svg += bar("Plimsoll", page.peak_bytes, longest, row, "#27c");
  return svg + "</svg>";
}

}  // namespace

std::string train_page_html(const TrainPage& page, const Json& result) {
  std::string html =
      "<!DOCTYPE html><html lang='en'><head><meta charset='utf-8'><title>Plimsoll</title><style>"
      "body{font:14px sans-serif;margin:2em;max-width:720px}svg text{font:11px sans-serif}"
      "td{padding:1px 12px 1px 0;vertical-align:top}h2{font-size:16px}</style></head><body>";
  html += fmt::format("<h1>{}</h1>", escaped(result.value("model", "")));
  html += bars(page);
  html += chart("Loss", {{"stock", "#c44", page.stock_losses}, {"Plimsoll", "#27c", page.losses}},
                number_label);
  if (!page.moved_bytes.empty())
    html += chart("Bytes moved a step", {{"out and in", "#27c", page.moved_bytes}}, bytes_label);
  html += "<h2>Figures</h2><table>";
  for (const auto& [key, value] : result.items()) {
    if (value.is_array()) continue;
    html += fmt::format("<tr><td>{}</td><td>{}</td></tr>", escaped(key),
                        escaped(value.is_string() ? value.get<std::string>() : value.dump()));
  }
  return html + "</table></body></html>\n";
}

std::string chrome_trace(const std::vector<SessionEvent>& events) {
  Json list = Json::array();
  const auto name_line = [&](int line, const char* name) {
    list.push_back({{"name", "thread_name"},
                    {"ph", "M"},
                    {"pid", 1},
                    {"tid", line},
                    {"args", {{"name", name}}}});
  };
  name_line(0, "operators");
  name_line(1, "copies out");
  name_line(2, "copies in");
  for (const SessionEvent& event : events) {
    list.push_back({{"name", event.name},
                    {"ph", "X"},
                    {"pid", 1},
                    {"tid", static_cast<int>(event.kind)},
                    {"ts", static_cast<double>(event.begin_ns) / 1e3},
                    {"dur", static_cast<double>(event.end_ns - event.begin_ns) / 1e3},
                    {"args", {{"bytes", event.bytes}}}});
  }
  return Json{{"traceEvents", list}, {"displayTimeUnit", "ms"}}.dump();
}

}  // namespace plimsoll::cli
