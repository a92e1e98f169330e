// SPDX-License-Identifier: Apache-2.0
// Identifiers that cannot be mistaken for one another.
//
// Noun: Id<Tag>, a 32-bit index with its own type. A part names its own:
//   using OpId = Id<struct OpIdTag>;
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace plimsoll {

// A dense, non-negative index; -1 (the default) means none. Comparable and hashable; converts to
// an index only through index(), so that swapping two arguments of different kinds does not
// compile.
template <typename Tag>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(std::int32_t value) : value_(value) {}
  constexpr explicit Id(std::size_t value) : value_(static_cast<std::int32_t>(value)) {}

  constexpr bool valid() const { return value_ >= 0; }
  constexpr std::int32_t value() const { return value_; }
  constexpr std::size_t index() const { return static_cast<std::size_t>(value_); }

  friend constexpr auto operator<=>(Id, Id) = default;

 private:
  std::int32_t value_ = -1;
};

}  // namespace plimsoll

template <typename Tag>
struct std::hash<plimsoll::Id<Tag>> {
  std::size_t operator()(plimsoll::Id<Tag> id) const noexcept {
    return std::hash<std::int32_t>()(id.value());
  }
};
