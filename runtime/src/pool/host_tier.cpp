// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/pool/host_tier.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/bytes.h"
#include "plimsoll/base/error.h"
#include "plimsoll/pool/range_allocator.h"

namespace plimsoll::pool {
namespace {

constexpr std::int64_t kPageBytes = 4096;
constexpr std::int64_t kPieceAlignment = 64;
constexpr std::int64_t kSharedSlabBytes = mib(1);
constexpr std::int64_t kOwnSlabBytes = kib(256);  // spans from here on have a slab of their own

}  // namespace

class HostTier::State {
 public:
  State(device::Device& device, HostTierOptions options) : device_(device), options_(options) {
    if (options_.limit_bytes < 0)
      throw InvalidArgument(
          fmt::format("a host limit of {} bytes is negative", options_.limit_bytes));
  }
  ~State() {
    for (const Slab& slab : slabs_)
      if (slab.data != nullptr) device_.free_host(slab.data, slab.bytes);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  std::optional<HostSpan> try_allocate(std::int64_t bytes) {
    if (bytes <= 0) throw InvalidArgument(fmt::format("a host span of {} bytes", bytes));
    HostSpan span = bytes < kOwnSlabBytes ? take_piece(bytes) : take_slab(bytes);
    if (!span.valid()) return std::nullopt;
    used_bytes_ += bytes;
    peak_used_bytes_ = std::max(peak_used_bytes_, used_bytes_);
    return span;
  }

  bool has_room(std::int64_t bytes) const noexcept {
    if (bytes < kOwnSlabBytes &&
        rooms_.lower_bound({align_up(bytes, kPieceAlignment), 0}) != rooms_.end())
      return true;
    return bytes <= options_.limit_bytes - (reserved_bytes_ - kept_bytes_);
  }

  void deallocate(const HostSpan& span) noexcept {
    if (!span.valid()) return;
    used_bytes_ -= span.bytes;
    Slab& slab = slabs_[static_cast<std::size_t>(span.slab)];
    if (!slab.pieces) {
      keep(span.slab);
      return;
    }
    rooms_.erase({slab.pieces->largest_free_bytes(), span.slab});
    slab.pieces->deallocate(SegmentId(span.piece));
    if (slab.pieces->used_bytes() == 0) {
      slab.pieces.reset();
      keep(span.slab);
    } else {
      rooms_.insert({slab.pieces->largest_free_bytes(), span.slab});
    }
  }

  void trim() noexcept {
    while (!kept_.empty()) give_back(std::prev(kept_.end()));
  }

  MemoryFigures figures(std::int64_t requested) const {
    return {requested, used_bytes_, options_.limit_bytes,
            options_.limit_bytes - (reserved_bytes_ - kept_bytes_)};
  }

  void check_invariants() const {
    std::int64_t used_at_least = 0;
    std::int64_t reserved = 0;
    std::int64_t kept = 0;
    std::size_t shared = 0;
    for (std::size_t i = 0; i < slabs_.size(); ++i) {
      const Slab& slab = slabs_[i];
      if (slab.data == nullptr) continue;
      reserved += slab.bytes;
      if (slab.is_kept) kept += slab.bytes;
      if (slab.pieces) {
        slab.pieces->check_invariants();
        ++shared;
        PLIMSOLL_CHECK(
            rooms_.contains({slab.pieces->largest_free_bytes(), static_cast<std::int32_t>(i)}),
            "a shared slab is missing in the list of rooms");
        used_at_least += slab.pieces->used_bytes();
      } else if (!slab.is_kept) {
        used_at_least += slab.bytes;
      }
    }
    PLIMSOLL_CHECK(reserved == reserved_bytes_, "reserved host bytes are miscounted");
    PLIMSOLL_CHECK(kept == kept_bytes_, "kept host bytes are miscounted");
    PLIMSOLL_CHECK(reserved <= options_.limit_bytes, "the host limit is exceeded");
    PLIMSOLL_CHECK(used_bytes_ >= 0 && used_bytes_ <= used_at_least,
                   "used host bytes are miscounted");
    PLIMSOLL_CHECK(shared == rooms_.size(), "the list of rooms has strangers");
  }

  device::Device& device_;
  HostTierOptions options_;
  std::int64_t used_bytes_ = 0;
  std::int64_t reserved_bytes_ = 0;

 private:
  struct Slab {
    void* data = nullptr;
    std::int64_t bytes = 0;
    bool is_kept = false;
    std::unique_ptr<RangeAllocator> pieces;  // of a shared slab
  };
  using Kept = std::set<std::pair<std::int64_t, std::int32_t>>;  // (bytes, slab)

  HostSpan take_piece(std::int64_t bytes) {
    const std::int64_t rounded = align_up(bytes, kPieceAlignment);
    auto room = rooms_.lower_bound({rounded, 0});
    if (room == rooms_.end()) {
      const std::int32_t slab = find_slab(kSharedSlabBytes, rounded);
      if (slab < 0) return {};
      Slab& fresh = slabs_[static_cast<std::size_t>(slab)];
      fresh.pieces = std::make_unique<RangeAllocator>(fresh.bytes, kPieceAlignment);
      room = rooms_.insert({fresh.pieces->largest_free_bytes(), slab}).first;
    }
    const std::int32_t index = room->second;
    Slab& slab = slabs_[static_cast<std::size_t>(index)];
    const SegmentId piece = *slab.pieces->allocate(rounded);
    rooms_.erase(room);
    rooms_.insert({slab.pieces->largest_free_bytes(), index});
    return {static_cast<std::byte*>(slab.data) + slab.pieces->offset(piece), bytes, index,
            piece.value()};
  }

  HostSpan take_slab(std::int64_t bytes) {
    const std::int32_t slab = find_slab(align_up(bytes, kPageBytes), bytes);
    if (slab < 0) return {};
    return {slabs_[static_cast<std::size_t>(slab)].data, bytes, slab, -1};
  }

  // Returns a slab of `wanted_bytes`, or of as few as `least_bytes` where the limit leaves no more;
  // -1 where there is none. A kept slab serves if no more than an eighth of it is wasted.
  std::int32_t find_slab(std::int64_t wanted_bytes, std::int64_t least_bytes) {
    const auto kept = kept_.lower_bound({least_bytes, 0});
    if (kept != kept_.end() && kept->first - kept->first / 8 <= wanted_bytes) {
      const std::int32_t index = kept->second;
      slabs_[static_cast<std::size_t>(index)].is_kept = false;
      kept_bytes_ -= kept->first;
      kept_.erase(kept);
      return index;
    }
    while (options_.limit_bytes - reserved_bytes_ < wanted_bytes && !kept_.empty())
      give_back(std::prev(kept_.end()));
    const std::int64_t bytes = std::min(wanted_bytes, options_.limit_bytes - reserved_bytes_);
    if (bytes < least_bytes) return -1;
    return new_slab(bytes);
  }

  std::int32_t new_slab(std::int64_t bytes) {
    std::int32_t index = -1;
    if (unused_.empty()) {
      slabs_.emplace_back();
      unused_.reserve(slabs_.size());  // so that giving back cannot fail
      unused_.push_back(static_cast<std::int32_t>(slabs_.size()) - 1);
    }
    index = unused_.back();
    Slab& slab = slabs_[static_cast<std::size_t>(index)];
    try {
      slab.data = device_.allocate_host(bytes);
    } catch (const HostOutOfMemory&) {
      return -1;
    }
    unused_.pop_back();
    slab.bytes = bytes;
    reserved_bytes_ += bytes;
    return index;
  }

  // Keeps a slab for reuse. What is reserved stays below a quarter more than was ever used at one
  // time (and a little), so that sizes that change from step to step do not pile up.
  void keep(std::int32_t index) noexcept {
    Slab& slab = slabs_[static_cast<std::size_t>(index)];
    slab.is_kept = true;
    kept_bytes_ += slab.bytes;
    kept_.insert({slab.bytes, index});
    while (!kept_.empty() && reserved_bytes_ > peak_used_bytes_ / 4 * 5 + mib(64))
      give_back(kept_.begin());
  }

  void give_back(Kept::iterator kept) noexcept {
    const std::int32_t index = kept->second;
    Slab& slab = slabs_[static_cast<std::size_t>(index)];
    kept_.erase(kept);
    kept_bytes_ -= slab.bytes;
    reserved_bytes_ -= slab.bytes;
    device_.free_host(slab.data, slab.bytes);
    slab = Slab{};
    unused_.push_back(index);
  }

  std::int64_t kept_bytes_ = 0;
  std::int64_t peak_used_bytes_ = 0;
  std::vector<Slab> slabs_;
  std::vector<std::int32_t> unused_;                       // places in slabs_
  Kept kept_;                                              // free slabs
  std::set<std::pair<std::int64_t, std::int32_t>> rooms_;  // shared slabs by largest free piece
};

HostTier::HostTier(device::Device& device, HostTierOptions options)
    : state_(std::make_unique<State>(device, options)) {}
HostTier::~HostTier() = default;

HostSpan HostTier::allocate(std::int64_t bytes) {
  const std::optional<HostSpan> span = state_->try_allocate(bytes);
  if (!span) throw HostOutOfMemory("the host tier is full", state_->figures(bytes));
  return *span;
}
std::optional<HostSpan> HostTier::try_allocate(std::int64_t bytes) {
  return state_->try_allocate(bytes);
}
bool HostTier::has_room(std::int64_t bytes) const noexcept { return state_->has_room(bytes); }
void HostTier::deallocate(const HostSpan& span) noexcept { state_->deallocate(span); }
void HostTier::trim() noexcept { state_->trim(); }
std::int64_t HostTier::limit_bytes() const noexcept { return state_->options_.limit_bytes; }
std::int64_t HostTier::used_bytes() const noexcept { return state_->used_bytes_; }
std::int64_t HostTier::reserved_bytes() const noexcept { return state_->reserved_bytes_; }
FileTier* HostTier::file() const noexcept { return state_->options_.file; }
void HostTier::check_invariants() const { state_->check_invariants(); }

}  // namespace plimsoll::pool
