// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <limits>
#include <utility>
#include <vector>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"
#include "plimsoll/graph/builder.h"
#include "plimsoll/graph/text.h"

#include "graph/file_bytes.h"

namespace plimsoll::graph {
namespace {

// A cursor over lines and the numbers on them.
class Lines {
 public:
  Lines(std::string_view text, const std::string& file) : rest_(text), file_(file) {}

  std::size_t number() const { return number_; }

  [[noreturn]] void refuse(const std::string& problem) const { refuse(number_, problem); }
  [[noreturn]] void refuse(std::size_t line, const std::string& problem) const {
    throw InvalidFile(file_, fmt::format("line {}", line), problem);
  }

  void next() {
    ++number_;
    if (rest_.empty()) refuse("the file ends here, but more lines were announced");
    const std::size_t end = rest_.find('\n');
    line_ = rest_.substr(0, end);
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    if (!line_.empty() && line_.back() == '\r') line_.remove_suffix(1);
  }

  std::int64_t number_of(std::string_view what, std::int64_t minimum, std::int64_t maximum) {
    skip_blanks();
    std::int64_t value = 0;
    const char* const last = line_.data() + line_.size();
    // NOLINTNEXTLINE(bugprone-suspicious-stringview-data-usage): `last` bounds it
    const auto [end, status] = std::from_chars(line_.data(), last, value);
    const bool ends = end == last || *end == ' ' || *end == '\t';
    if (status == std::errc::result_out_of_range)
      refuse(fmt::format("{} is more than 64 bits can count", what));
    if (status != std::errc() || !ends)
      refuse(fmt::format("{} is missing or not a whole number", what));
    if (value < minimum || value > maximum)
      refuse(fmt::format("{} is {}; it lies between {} and {}", what, value, minimum, maximum));
    line_.remove_prefix(static_cast<std::size_t>(end - line_.data()));
    return value;
  }

  std::string_view name() {
    skip_blanks();
    while (!line_.empty() && (line_.back() == ' ' || line_.back() == '\t')) line_.remove_suffix(1);
    return std::exchange(line_, {});
  }

  void end_line() {
    skip_blanks();
    if (!line_.empty()) refuse(fmt::format("'{}' after the last number", line_.substr(0, 40)));
  }

  void end_file() {
    while (!rest_.empty()) {
      next();
      end_line();
    }
  }

 private:
  void skip_blanks() {
    while (!line_.empty() && (line_.front() == ' ' || line_.front() == '\t'))
      line_.remove_prefix(1);
  }

  std::string_view rest_;
  std::string_view line_;
  const std::string& file_;
  std::size_t number_ = 0;
};

constexpr std::int64_t kMaxCount = (std::int64_t{1} << 31) - 1;
constexpr std::int64_t kMaxBytes = std::numeric_limits<std::int64_t>::max();

struct Header {
  std::int64_t values = 0;
  std::int64_t ops = 0;
};

void read_values(Lines& lines, const Header& header, GraphBuilder& builder,
                 std::vector<std::uint8_t>& from_start) {
  for (std::int64_t i = 0; i < header.values; ++i) {
    lines.next();
    const std::int64_t size = lines.number_of("the size in bytes", 0, kMaxBytes);
    const bool starts = lines.number_of("'live from the start'", 0, 1) == 1;
    const bool stays = lines.number_of("'live to the end'", 0, 1) == 1;
    lines.end_line();
    from_start.push_back(starts ? 1 : 0);
    builder.add_tensor(size,
                       starts  ? ValueKind::kInput
                       : stays ? ValueKind::kOutput
                               : ValueKind::kActivation,
                       stays);
  }
}

void read_ids(Lines& lines, std::int64_t count, std::int64_t values, std::vector<ValueId>& ids) {
  ids.clear();
  for (std::int64_t i = 0; i < count; ++i)
    ids.emplace_back(static_cast<std::int32_t>(lines.number_of("a value's id", 0, values - 1)));
}

}  // namespace

Graph read_text(std::string_view text, const std::string& file) {
  Lines lines(text, file);
  lines.next();
  Header header;
  header.values = lines.number_of("the count of values", 0, kMaxCount);
  header.ops = lines.number_of("the count of ops", 0, kMaxCount);
  lines.end_line();
  GraphBuilder builder;
  // Which line an id stands on, to turn the builder's complaints into places.
  const auto line_of = [&header](const InvalidGraph& error) -> std::size_t {
    if (error.place() == InvalidGraph::Place::kGraph) return 1;
    const std::size_t skipped =
        error.place() == InvalidGraph::Place::kOp ? static_cast<std::size_t>(header.values) : 0;
    return 2 + skipped + error.index();
  };
  try {
    std::vector<std::uint8_t> from_start;
    read_values(lines, header, builder, from_start);
    std::vector<std::uint8_t> produced(from_start.size(), 0);
    OpSpec spec;
    for (std::int64_t i = 0; i < header.ops; ++i) {
      lines.next();
      const bool may_overwrite = lines.number_of("'may overwrite'", 0, 1) == 1;
      const std::int64_t operands = lines.number_of("the number of operands", 0, kMaxCount);
      const std::int64_t results = lines.number_of("the number of results", 0, kMaxCount);
      read_ids(lines, operands, header.values, spec.operands);
      read_ids(lines, results, header.values, spec.results);
      spec.kind = lines.name();
      for (const ValueId v : spec.results) {
        if (from_start[v.index()] != 0)
          lines.refuse(fmt::format("writes value {}, which is live from the start", v.value()));
        produced[v.index()] = 1;
      }
      spec.inplace_operand = ValueId();
      if (may_overwrite) {
        if (operands < 1 || results != 1)
          lines.refuse("'may overwrite' needs at least one operand and exactly one result");
        if (builder.size_bytes(spec.operands[0]) == builder.size_bytes(spec.results[0]) &&
            spec.operands[0] != spec.results[0])
          spec.inplace_operand = spec.operands[0];
      }
      builder.add_op(spec);
    }
    lines.end_file();
    for (std::size_t i = 0; i < produced.size(); ++i) {
      if (produced[i] == 0 && from_start[i] == 0)
        lines.refuse(2 + i, "no op writes this value and it is not live from the start");
    }
    return builder.build();
  } catch (const InvalidGraph& error) {
    lines.refuse(line_of(error), error.problem());
  }
}

Graph read_text_file(const std::filesystem::path& path) {
  return read_text(read_file_bytes(path), path.string());
}

}  // namespace plimsoll::graph
