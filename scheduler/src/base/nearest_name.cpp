// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/base/nearest_name.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "plimsoll/base/error.h"

namespace plimsoll {
namespace {

// Levenshtein's distance, one row at a time.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row.back();
}

}  // namespace

std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates) {
  PLIMSOLL_CHECK(!candidates.empty(), "nothing to choose the nearest name from");
  return *std::min_element(candidates.begin(), candidates.end(),
                           [&](const std::string& a, const std::string& b) {
                             return edit_distance(word, a) < edit_distance(word, b);
                           });
}

}  // namespace plimsoll
