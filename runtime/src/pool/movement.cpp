// SPDX-License-Identifier: Apache-2.0
// How bytes leave the arena, come back, and slide inside it. Order everywhere: first the bytes,
// which may fail, then the books, which may not.
#include <algorithm>
#include <cstring>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/bytes.h"

#include "pool/tensor_pool_state.h"

namespace plimsoll::pool {

using device::CopyKind;
using device::Queue;

namespace {

// Ranges of which it is remembered singly when kCompute used them last.
constexpr std::size_t kMostFreed = 64;

}  // namespace

// --- Copies below the arena ---------------------------------------------------------------------

void TensorPool::State::drop_copy(BlockId id) noexcept {
  Block& block = blocks_[id.index()];
  if (block.host.valid()) host_.deallocate(block.host);
  if (block.file.valid()) host_.file()->deallocate(block.file);
  block.written_below = device::Event{};
  if (block.read_below.ticket > spans_read_.ticket) spans_read_ = block.read_below;
  block.host = HostSpan{};
  block.file = FileSpan{};
}

void TensorPool::State::link_clean(BlockId id) noexcept {
  Block& block = blocks_[id.index()];
  CleanList& list = clean_list(block);
  block.clean_previous = list.last;
  block.clean_next = BlockId();
  if (list.last.valid())
    blocks_[list.last.index()].clean_next = id;
  else
    list.first = id;
  list.last = id;
  list.bytes += block.bytes;
}

void TensorPool::State::unlink_clean(BlockId id) noexcept {
  Block& block = blocks_[id.index()];
  CleanList& list = clean_list(block);
  if (block.clean_previous.valid())
    blocks_[block.clean_previous.index()].clean_next = block.clean_next;
  else
    list.first = block.clean_next;
  if (block.clean_next.valid())
    blocks_[block.clean_next.index()].clean_previous = block.clean_previous;
  else
    list.last = block.clean_previous;
  list.bytes -= block.bytes;
}

// An invalid span means that the file is to be used. Errors: HostOutOfMemory with the tier's
// figures where there is none.
HostSpan TensorPool::State::take_host_span_or_throw(std::int64_t bytes) {
  const HostSpan span = take_host_span(bytes);
  // Tried once more: memory that the machine did not have a moment ago it may have by now.
  return span.valid() || host_.file() != nullptr ? span : host_.allocate(bytes);
}

// Returns an invalid span where the tier is full even without the copies of resident blocks, which
// are dropped one by one, oldest first, as they only save a later copy.
HostSpan TensorPool::State::take_host_span(std::int64_t bytes) {
  CleanList& clean = clean_[static_cast<std::size_t>(Tier::kHost)];
  for (;;) {
    if (const std::optional<HostSpan> span = host_.try_allocate(bytes)) return *span;
    const std::int64_t needed = host_.used_bytes() - clean.bytes;
    if (!clean.first.valid() || bytes > host_.limit_bytes() - needed) return {};
    const BlockId oldest = clean.first;
    unlink_clean(oldest);
    drop_copy(oldest);
  }
}

FileSpan TensorPool::State::take_file_span(std::int64_t bytes) {
  CleanList& clean = clean_[static_cast<std::size_t>(Tier::kFile)];
  for (;;) {
    try {
      return host_.file()->allocate(bytes);
    } catch (const HostOutOfMemory&) {
      if (!clean.first.valid()) throw;
    }
    const BlockId oldest = clean.first;
    unlink_clean(oldest);
    drop_copy(oldest);
  }
}

std::byte* TensorPool::State::staging() {
  if (staging_ == nullptr) staging_ = static_cast<std::byte*>(device_.allocate_host(kStagingBytes));
  return staging_;
}

void TensorPool::State::write_file(const Block& block, const FileSpan& span) {
  FileTier& file = *host_.file();
  const std::byte* source = base_ + arena_.offset(block.segment);
  if (device_.info().is_host_addressable) {
    file.write(span, 0, source, block.bytes);
    return;
  }
  for (std::int64_t done = 0; done < block.bytes; done += kStagingBytes) {
    const std::int64_t part = std::min(kStagingBytes, block.bytes - done);
    device_.copy_blocking(staging(), source + done, part, CopyKind::kDeviceToHost);
    file.write(span, done, staging(), part);
  }
}

// Reads the block's file copy into the arena or into host memory, whichever is given.
void TensorPool::State::read_file(const Block& block, void* arena_destination,
                                  void* host_destination) {
  FileTier& file = *host_.file();
  if (arena_destination == nullptr || device_.info().is_host_addressable) {
    file.read(block.file, 0, arena_destination == nullptr ? host_destination : arena_destination,
              block.bytes);
    return;
  }
  auto* destination = static_cast<std::byte*>(arena_destination);
  for (std::int64_t done = 0; done < block.bytes; done += kStagingBytes) {
    const std::int64_t part = std::min(kStagingBytes, block.bytes - done);
    file.read(block.file, done, staging(), part);
    device_.copy_blocking(destination + done, staging(), part, CopyKind::kHostToDevice);
  }
}

// --- Running ahead of the device ----------------------------------------------------------------

// Behind what made the source, and in line with all that is ever written to host spans.
device::Event TensorPool::State::copy_out(const void* source, void* host, std::int64_t bytes,
                                          const device::Event& made) {
  device_.wait(Queue::kCopyOut, made.ticket > spans_read_.ticket ? made : spans_read_);
  return device_.copy(host, source, bytes, CopyKind::kDeviceToHost, Queue::kCopyOut);
}

void TensorPool::State::note_use(Block& block) noexcept {
  if (is_ahead_) block.used = device_.compute_mark();
}

void TensorPool::State::note_write(Block& block) noexcept {
  note_use(block);
  block.written = block.used;
}

device::Event TensorPool::State::last_write(const Block& block) const noexcept {
  return block.written.ticket > all_used_.ticket ? block.written : all_used_;
}

void TensorPool::State::note_free(const Interval& range, const device::Event& used) noexcept {
  if (!is_ahead_) return;
  try {
    freed_.push_back({range, used});
  } catch (const std::bad_alloc&) {
    freed_before_ = device_.compute_mark();
    return;
  }
  if (freed_.size() <= kMostFreed) return;
  if (freed_.front().until.ticket > freed_before_.ticket) freed_before_ = freed_.front().until;
  freed_.pop_front();
}

// By kCompute, of a range that is free.
device::Event TensorPool::State::last_use_of(const Interval& range) const noexcept {
  device::Event last = freed_before_;
  for (const UsedRange& freed : freed_)
    if (freed.until.ticket > last.ticket && !intersect(freed.range, range).empty())
      last = freed.until;
  return last;
}

// Makes the queue wait for copies that may still read the range. All are kCopyOut's: the last of
// them stands for those before it.
void TensorPool::State::wait_for_range(const Interval& range, Queue queue) {
  if (guarded_.empty()) return;
  std::erase_if(guarded_, [&](const UsedRange& guarded) { return device_.done(guarded.until); });
  device::Event last;
  for (const UsedRange& guarded : guarded_)
    if (guarded.until.ticket > last.ticket && !intersect(guarded.range, range).empty())
      last = guarded.until;
  if (last.ticket > 0) device_.wait(queue, last);
}

// The block's range is about to be given away before the copy that reads it is over.
void TensorPool::State::guard_range(const Block& block, const device::Event& event) noexcept {
  try {
    guarded_.push_back({range_of(block.segment), event});
  } catch (const std::bad_alloc&) {
    try {
      device_.synchronize(event);
    } catch (const std::exception&) {
      ++totals_.failed_copies;
    }
  }
}

// Waits until the host may read and write host spans itself.
void TensorPool::State::settle_host() {
  if (!is_ahead_) return;
  for (const Queue queue : {Queue::kCopyOut, Queue::kCopyIn, Queue::kCompute})
    device_.synchronize(device_.record(queue));
}

// Where neighbours on their way out, with what is free between them, would make a hole: gives away
// their ranges, of the neighbours that will be gone first.
void TensorPool::State::vacate_for(std::int64_t bytes) noexcept {
  if (!is_ahead_ || moving_.empty() || has_hole(bytes)) return;
  struct Run {
    SegmentId first;
    std::int64_t bytes = 0;
    std::uint64_t last_ticket = 0;
  };
  Run best;
  Run run;
  const auto blocks_way = [&](SegmentId segment) {
    return !arena_.is_free(segment) &&
           blocks_[static_cast<std::size_t>(arena_.tag(segment))].residence !=
               Residence::kMovingOut;
  };
  for (SegmentId segment = arena_.first(); segment.valid(); segment = arena_.next(segment)) {
    if (blocks_way(segment)) {
      run = Run{};
      continue;
    }
    if (!run.first.valid()) run.first = segment;
    run.bytes += arena_.bytes(segment);
    if (!arena_.is_free(segment))
      run.last_ticket = std::max(
          run.last_ticket, blocks_[static_cast<std::size_t>(arena_.tag(segment))].pending.ticket);
    const bool is_better = !best.first.valid() || run.last_ticket < best.last_ticket;
    if (run.bytes >= bytes && is_better) best = run;
  }
  if (!best.first.valid()) return;
  // One at a time: giving a range away joins its segment with its neighbours.
  const Interval hole{arena_.offset(best.first), arena_.offset(best.first) + best.bytes};
  for (std::size_t i = moving_.size(); i-- > 0;) {
    const Block& block = blocks_[moving_[i].index()];
    if (block.residence == Residence::kMovingOut && hole.contains(range_of(block.segment)))
      finish_move(moving_[i]);
  }
}

// --- Moves that are done when they return -------------------------------------------------------

void TensorPool::State::evict(BlockId id) {
  const Block& block = at(id);
  if (block.residence == Residence::kMovingOut || block.residence == Residence::kMovingIn)
    finish_move(id);
  if (block.residence != Residence::kResident) return;
  if (is_immovable(block))
    throw InvalidArgument(
        fmt::format("block {} is pinned or unbound; it cannot be evicted", id.value()));
  evict_now(id);
}

// Moves an idle resident block out: without a copy where one below is valid, else to the host, else
// to the file.
void TensorPool::State::evict_now(BlockId id) {
  Block& block = blocks_[id.index()];
  if (block.owner->before_move(id)) note_write(block);
  if (has_copy(block)) {
    unlink_clean(id);
    ++totals_.clean_evictions;
    leave_arena(id);
    return;
  }
  if (const HostSpan span = take_host_span_or_throw(block.bytes); span.valid()) {
    const void* source = base_ + arena_.offset(block.segment);
    try {
      if (is_ahead_)
        block.written_below = copy_out(source, span.data, block.bytes, last_write(block));
      else
        device_.copy_blocking(span.data, source, block.bytes, CopyKind::kDeviceToHost);
    } catch (...) {
      host_.deallocate(span);
      throw;
    }
    if (is_ahead_) guard_range(block, block.written_below);
    block.host = span;
  } else {
    const FileSpan file_span = take_file_span(block.bytes);
    try {
      write_file(block, file_span);
    } catch (...) {
      host_.file()->deallocate(file_span);
      throw;
    }
    block.file = file_span;
  }
  totals_.offloaded_bytes += block.bytes;
  leave_arena(id);
}

// The bytes are below; tells the owner and frees the range.
void TensorPool::State::leave_arena(BlockId id) noexcept {
  Block& block = blocks_[id.index()];
  void* const old_address = base_ + arena_.offset(block.segment);
  block.residence = block.host.valid() ? Residence::kHost : Residence::kFile;
  ++totals_.evictions;
  index_.erase(arena_.offset(block.segment));
  if (block.owner != nullptr) block.owner->on_move(id, old_address, nullptr);
  drop_range(id);
}

// Brings a block in from below, into a range that is made for it.
void TensorPool::State::fetch_now(BlockId id) {
  const SegmentId segment = make_range(blocks_[id.index()].range_bytes);
  Block& block = blocks_[id.index()];
  void* const address = base_ + arena_.offset(segment);
  try {
    wait_for_range(range_of(segment), Queue::kCompute);
    if (block.host.valid())
      read_span(block, 0, address, block.bytes, Side::kDevice);
    else
      read_file(block, address, nullptr);
  } catch (...) {
    arena_.deallocate(segment);
    throw;
  }
  give_range(id, segment);
  totals_.prefetched_bytes += block.bytes;
  keep_resident(id);
}

// The bytes are in the block's range and below: it is resident and clean.
void TensorPool::State::keep_resident(BlockId id) noexcept {
  Block& block = blocks_[id.index()];
  block.residence = Residence::kResident;
  note_write(block);
  block.read_below = block.used;
  ++totals_.fetches;
  show_address(id);
  link_clean(id);
  if (block.owner != nullptr) block.owner->on_move(id, nullptr, address(block));
}

void TensorPool::State::slide_to(BlockId id, std::int64_t offset) {
  Block& block = blocks_[id.index()];
  const std::int64_t old_offset = arena_.offset(block.segment);
  if (offset == old_offset) return;
  if (block.owner->before_move(id)) note_write(block);
  wait_for_range({offset, offset + block.range_bytes}, Queue::kCompute);
  device_.copy(base_ + offset, base_ + old_offset, block.bytes, CopyKind::kDeviceToDevice,
               Queue::kCompute);
  note_write(block);
  index_.erase(old_offset);
  arena_.deallocate(block.segment);
  block.segment = arena_.allocate_at(free_segment_with(offset), offset, block.range_bytes);
  arena_.set_tag(block.segment, id.value());
  show_address(id);
  totals_.slid_bytes += block.bytes;
  ++totals_.slides;
  if (block.owner != nullptr) block.owner->on_move(id, base_ + old_offset, base_ + offset);
  // What the block has left: its old range less the part that the new one covers.
  const Interval old_range{old_offset, old_offset + block.range_bytes};
  note_free(old_range, block.used);
  const Interval covered = intersect(old_range, {offset, offset + block.range_bytes});
  if (covered.empty()) {
    poison(old_offset, block.range_bytes);
  } else {
    poison(old_range.begin, covered.begin - old_range.begin);
    poison(covered.end, old_range.end - covered.end);
  }
}

// --- Moves on the copy queues -------------------------------------------------------------------

void TensorPool::State::start_moving(BlockId id, Residence residence,
                                     const device::Event& event) noexcept {
  Block& block = blocks_[id.index()];
  block.residence = residence;
  block.pending = event;
  block.moving_index = static_cast<std::int32_t>(moving_.size());
  moving_.push_back(id);
}

void TensorPool::State::stop_moving(BlockId id) noexcept {
  Block& block = blocks_[id.index()];
  const BlockId last = moving_.back();
  moving_[static_cast<std::size_t>(block.moving_index)] = last;
  blocks_[last.index()].moving_index = block.moving_index;
  moving_.pop_back();
  block.moving_index = -1;
  block.pending = device::Event{};
}

bool TensorPool::State::begin_evict(BlockId id) {
  Block& block = at(id);
  if (block.residence != Residence::kResident || is_immovable(block)) return false;
  if (has_copy(block)) {
    evict_now(id);
    return true;
  }
  const HostSpan span = take_host_span(block.bytes);
  if (!span.valid()) return false;
  device::Event event;
  try {
    if (block.owner->before_move(id)) note_write(block);
    event =
        copy_out(base_ + arena_.offset(block.segment), span.data, block.bytes, last_write(block));
  } catch (...) {
    host_.deallocate(span);
    throw;
  }
  block.host = span;
  start_moving(id, Residence::kMovingOut, event);
  return true;
}

bool TensorPool::State::begin_fetch(BlockId id) {
  Block& block = at(id);
  if (block.residence != Residence::kHost) return false;
  poll();
  vacate_for(block.range_bytes);
  const std::optional<SegmentId> segment = try_range(block.range_bytes);
  if (!segment) return false;
  device::Event event;
  try {
    device_.wait(Queue::kCopyIn, last_use_of(range_of(*segment)));
    wait_for_range(range_of(*segment), Queue::kCopyIn);
    if (is_ahead_) device_.wait(Queue::kCopyIn, block.written_below);
    event = device_.copy(base_ + arena_.offset(*segment), block.host.data, block.bytes,
                         CopyKind::kHostToDevice, Queue::kCopyIn);
  } catch (...) {
    arena_.deallocate(*segment);
    throw;
  }
  give_range(id, *segment);
  start_moving(id, Residence::kMovingIn, event);
  return true;
}

// Puts the block's copy in front of all later compute, or blocks until it is over; false where it
// failed.
bool TensorPool::State::copy_arrived(const Block& block) noexcept {
  if (is_ahead_) {
    try {
      device_.wait(Queue::kCompute, block.pending);
      return true;
    } catch (const std::exception&) {
      // Then the host waits instead.
    }
  }
  try {
    device_.synchronize(block.pending);
    return true;
  } catch (...) {
    ++totals_.failed_copies;
    return false;
  }
}

// Ends a move. Where the copy failed the block is where it was. A doomed block ends.
void TensorPool::State::finish_move(BlockId id) noexcept {
  Block& block = blocks_[id.index()];
  const bool moved_out = block.residence == Residence::kMovingOut;
  bool arrived = true;
  if (moved_out && is_ahead_) {
    // Whoever takes the range waits for the copy.
    guard_range(block, block.pending);
    block.written_below = block.pending;
  } else {
    arrived = copy_arrived(block);
  }
  stop_moving(id);
  if (block.is_doomed) {
    if (!moved_out) {
      note_use(block);
      block.read_below = block.used;
    }
    block.residence = Residence::kHost;  // not in a clean list
    end_block(id);
    return;
  }
  if (moved_out && arrived) {
    totals_.offloaded_bytes += block.bytes;
    leave_arena(id);
  } else if (moved_out) {
    drop_copy(id);
    block.residence = Residence::kResident;
  } else if (arrived) {
    totals_.prefetched_bytes += block.bytes;
    keep_resident(id);
  } else {
    drop_range(id);
    block.residence = Residence::kHost;
  }
}

void TensorPool::State::poll() noexcept {
  for (std::size_t i = moving_.size(); i-- > 0;)
    if (device_.done(blocks_[moving_[i].index()].pending)) finish_move(moving_[i]);
}

void TensorPool::State::synchronize() noexcept {
  while (!moving_.empty()) finish_move(moving_.back());
  try {
    settle_host();
  } catch (const std::exception&) {
    ++totals_.failed_copies;
  }
}

void TensorPool::State::read(BlockId id, void* destination, Side side) {
  Block& block = at(id);
  if (block.residence == Residence::kMovingIn) finish_move(id);
  if (block.residence == Residence::kResident || block.residence == Residence::kMovingOut) {
    if (side == Side::kDevice)
      device_.copy(destination, address(block), block.bytes, CopyKind::kDeviceToDevice,
                   Queue::kCompute);
    else
      device_.copy_blocking(destination, address(block), block.bytes, CopyKind::kDeviceToHost);
    note_use(block);
  } else if (block.host.valid()) {
    read_span(block, 0, destination, block.bytes, side);
  } else if (side == Side::kDevice) {
    read_file(block, destination, nullptr);
  } else {
    read_file(block, nullptr, destination);
  }
}

}  // namespace plimsoll::pool
