// SPDX-License-Identifier: Apache-2.0
// What somebody may have meant who wrote a name that does not exist.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

// The candidate with the least edit distance to `word`; the first of equals. At least one.
std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace plimsoll
