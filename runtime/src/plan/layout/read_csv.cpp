// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"
#include "plimsoll/plan/layout_io.h"

namespace plimsoll::plan {
namespace {

enum Column : std::size_t { kId, kLower, kUpper, kSize, kAlignment, kOffset, kHint, kArena, kGaps };
constexpr std::size_t kColumns = 9;
constexpr std::array<std::string_view, kColumns> kNames = {
    "id", "lower", "upper", "size", "alignment", "offset", "hint", "arena", "gaps"};
constexpr std::size_t kMostFields = 64;

// A field of a bad file as it stands in a message: short, and without control characters.
std::string shown(std::string_view text) {
  std::string result;
  for (const char c : text.substr(0, 40)) {
    const auto code = static_cast<unsigned char>(c);
    result += code < 32 || code >= 127 ? '?' : c;
  }
  return text.size() > 40 ? result + "..." : result;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r'))
    text.remove_suffix(1);
  return text;
}

class CsvReader {
 public:
  CsvReader(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  LayoutProblem read() {
    if (text_.starts_with("\xef\xbb\xbf")) text_.remove_prefix(3);
    if (!next_line()) fail("the file is empty; the first line names the columns");
    read_header();
    while (next_line()) read_row();
    try {
      check_layout_problem(problem_);
    } catch (const InvalidArgument& error) {
      throw InvalidFile(file_, "", error.what());
    }
    return std::move(problem_);
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw InvalidFile(file_, fmt::format("line {}", std::max<std::int64_t>(line_, 1)), problem);
  }

  // Splits the next line that is not blank.
  bool next_line() {
    while (at_ < text_.size()) {
      const std::size_t end = std::min(text_.find('\n', at_), text_.size());
      const std::string_view line = trimmed(text_.substr(at_, end - at_));
      at_ = end + 1;
      ++line_;
      if (line.empty()) continue;
      split(line);
      return true;
    }
    return false;
  }

  void split(std::string_view line) {
    fields_.clear();
    for (std::size_t begin = 0; begin <= line.size();) {
      const std::size_t end = std::min(line.find(',', begin), line.size());
      fields_.push_back(trimmed(line.substr(begin, end - begin)));
      if (fields_.size() > kMostFields)
        fail(fmt::format("more than {} fields; lines end with a line feed", kMostFields));
      begin = end + 1;
    }
  }

  void read_header() {
    places_.fill(-1);
    for (std::size_t f = 0; f < fields_.size(); ++f) {
      std::string_view name = fields_[f];
      if (name == "buffer" || name == "buffer_id") name = "id";
      if (name == "start" || name == "begin") name = "lower";
      if (name == "end") {
        name = "upper";
        upper_shift_ = 1;
      }
      std::size_t column = 0;
      while (column < kColumns && kNames[column] != name) ++column;
      if (column == kColumns)
        fail(
            fmt::format("column '{}' is unknown; there are id, lower, upper, size, alignment, "
                        "offset, hint, arena, gaps",
                        shown(name)));
      if (places_[column] >= 0) fail(fmt::format("column '{}' stands twice", kNames[column]));
      places_[column] = static_cast<std::int32_t>(f);
    }
    for (const Column column : {kId, kLower, kUpper, kSize}) {
      if (places_[column] < 0) fail(fmt::format("column '{}' is missing", kNames[column]));
    }
    columns_ = fields_.size();
  }

  std::int64_t parse(std::string_view text, std::string_view what) const {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc::result_out_of_range)
      fail(fmt::format("{} '{}' leaves 64 bits", what, shown(text)));
    if (error != std::errc() || end != text.data() + text.size())
      fail(fmt::format("{} '{}' is no integer", what, shown(text)));
    return value;
  }

  std::int64_t number(Column column, std::int64_t otherwise) const {
    if (places_[column] < 0) return otherwise;
    const std::string_view text = fields_[static_cast<std::size_t>(places_[column])];
    if (text.empty() && column > kSize) return otherwise;
    return parse(text, kNames[column]);
  }

  std::int64_t shifted(std::int64_t upper) const {
    if (upper == kUnlimitedBytes) fail(fmt::format("upper {} leaves 64 bits", upper));
    return upper + upper_shift_;
  }

  void read_row() {
    if (fields_.size() != columns_)
      fail(fmt::format("{} fields, the header has {}", fields_.size(), columns_));
    LayoutBuffer b;
    b.lifetime = {number(kLower, 0), shifted(number(kUpper, 0))};
    if (b.lifetime.end < b.lifetime.begin)
      fail(fmt::format("upper {} has to be at least lower {}", b.lifetime.end - upper_shift_,
                       b.lifetime.begin));
    b.size_bytes = number(kSize, 0);
    if (b.size_bytes < 0) fail(fmt::format("size {} has to be 0 or more", b.size_bytes));
    b.alignment_bytes = number(kAlignment, 1);
    if (b.alignment_bytes < 1)
      fail(fmt::format("alignment {} has to be 1 or more", b.alignment_bytes));
    b.fixed_offset_bytes = number(kOffset, kNoOffset);
    if (b.fixed_offset_bytes < kNoOffset ||
        (b.fixed_offset_bytes != kNoOffset && b.fixed_offset_bytes % b.alignment_bytes != 0))
      fail(fmt::format("offset {} has to be a multiple of the alignment {}, or -1 for none",
                       b.fixed_offset_bytes, b.alignment_bytes));
    b.hint_offset_bytes = std::max(kNoOffset, number(kHint, kNoOffset));
    const std::int64_t arena = number(kArena, 0);
    if (arena < 0 || arena >= 1024) fail(fmt::format("arena {} has to be in [0, 1024)", arena));
    b.arena = static_cast<std::int32_t>(arena);
    if (problem_.arenas.size() <= static_cast<std::size_t>(arena))
      problem_.arenas.resize(static_cast<std::size_t>(arena) + 1);
    if (places_[kGaps] >= 0) read_gaps(fields_[static_cast<std::size_t>(places_[kGaps])], b);
    problem_.buffers.push_back(std::move(b));
    problem_.names.emplace_back(fields_[static_cast<std::size_t>(places_[kId])]);
  }

  // "3-5 8-9@0:16". A minus sign before a number belongs to the number.
  void read_gaps(std::string_view text, LayoutBuffer& b) const {
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find(' ', begin), text.size());
      const std::string_view gap = text.substr(begin, end - begin);
      begin = end + 1;
      if (gap.empty()) continue;
      const std::size_t at = std::min(gap.find('@'), gap.size());
      const std::string_view time = gap.substr(0, at);
      const std::size_t dash = time.find('-', 1);
      if (dash == std::string_view::npos)
        fail(fmt::format("gap '{}' has to read lower-upper or lower-upper@low:high", shown(gap)));
      LayoutGap result;
      result.time = {parse(time.substr(0, dash), "gap"),
                     shifted(parse(time.substr(dash + 1), "gap"))};
      if (at < gap.size()) {
        const std::string_view window = gap.substr(at + 1);
        const std::size_t colon = window.find(':');
        if (colon == std::string_view::npos)
          fail(fmt::format("gap '{}' has to read lower-upper or lower-upper@low:high", shown(gap)));
        result.kept = {parse(window.substr(0, colon), "gap"),
                       parse(window.substr(colon + 1), "gap")};
      }
      b.gaps.push_back(result);
    }
  }

  std::string_view text_;
  const std::string& file_;
  std::size_t at_ = 0;
  std::int64_t line_ = 0;
  std::vector<std::string_view> fields_;
  std::array<std::int32_t, kColumns> places_{};
  std::size_t columns_ = 0;
  std::int64_t upper_shift_ = 0;
  LayoutProblem problem_;
};

}  // namespace

LayoutProblem parse_layout_csv(std::string_view text, const std::string& file) {
  return CsvReader(text, file).read();
}

LayoutProblem read_layout(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    throw InvalidFile(path.string(), "", "is a folder; a CSV or JSON file is needed");
  std::ifstream in(path, std::ios::binary);
  if (!in) throw InvalidFile(path.string(), "", "cannot be opened");
  std::ostringstream text;
  text << in.rdbuf();
  if (in.bad()) throw InvalidFile(path.string(), "", "cannot be read");
  const std::string content = std::move(text).str();
  const std::size_t first = content.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string::npos && content[first] == '{';
  return is_json ? parse_layout_json(content, path.string())
                 : parse_layout_csv(content, path.string());
}

}  // namespace plimsoll::plan
