// SPDX-License-Identifier: Apache-2.0
// Layout problems and layouts as text: MiniMalloc's CSV (which the SOMAS and IOPDDL sets use too)
// and JSON; a picture as SVG.
//
// Nouns: LayoutFormat, LayoutPicture.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "plimsoll/plan/layout.h"

namespace plimsoll::plan {

// CSV. The first line names the columns, in any order:
//
//   id (buffer, buffer_id)   any text without a comma
//   lower (start, begin)     first moment of life
//   upper                    first moment after it; `end` instead means the last moment of life
//   size                     bytes
//   alignment                optional, 1 where empty
//   offset                   optional: the buffer must stand here; free where empty or -1
//   hint                     optional: a wish; none where empty or -1
//   arena                    optional, 0 where empty
//   gaps                     optional: "3-5 8-9@0:16", a stretch of time in which nothing, or only
//                            the bytes in [0, 16), is kept
//
// JSON. {"buffers": [{"id", "lower", "upper", "size", "alignment", "offset", "hint", "arena",
// "gaps": [{"lower", "upper", "window": [low, high]}]}], "arenas": [{"name", "capacity"}],
// "reserved": [{"arena", "lower", "upper", "begin", "end"}]}; all but id, lower, upper and size may
// be left out.
//
// Errors of all readers: InvalidFile with the line or the JSON path, the value and what is right.
// Memory is bounded by a constant times the length of the text.
LayoutProblem parse_layout_csv(std::string_view text, const std::string& file);
LayoutProblem parse_layout_json(std::string_view text, const std::string& file);

// Reads a file; JSON where its first character other than white space is '{', else CSV.
LayoutProblem read_layout(const std::filesystem::path& path);

// Write the problem in the same forms; with `offsets_bytes` (not null) each buffer's `offset` is
// its place in the layout. Columns that say nothing are left out. What is written reads back.
// CSV knows neither capacities nor reserved ranges nor arenas' names.
std::string write_layout_csv(const LayoutProblem& problem,
                             const std::vector<std::int64_t>* offsets_bytes);
std::string write_layout_json(const LayoutProblem& problem,
                              const std::vector<std::int64_t>* offsets_bytes);

struct LayoutPicture {
  std::int32_t arena = 0;
  std::int32_t width_px = 1200;
  std::int32_t height_px = 700;
  std::size_t most_buffers = 20'000;  // the largest by area are drawn
};

// Draws time x address: a rectangle a stretch of a buffer, the load and the top as lines, the
// moment of the peak marked. O(n log n).
std::string draw_layout_svg(const LayoutProblem& problem,
                            const std::vector<std::int64_t>& offsets_bytes,
                            const LayoutPicture& picture = {});

// When the load of an arena is highest, and who makes it up.
struct LayoutPeak {
  std::int64_t time = 0;  // the first such moment
  std::int64_t load_bytes = 0;
  std::vector<std::size_t> buffers;  // by bytes held then, falling
};
LayoutPeak find_layout_peak(const LayoutProblem& problem, std::int32_t arena);

}  // namespace plimsoll::plan
