// SPDX-License-Identifier: Apache-2.0
// Parts of blocks, read and written wherever the bytes are: the way through a tensor that is larger
// than what is left of the arena.
#include <algorithm>
#include <cstring>
#include <memory>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/bytes.h"

#include "pool/tensor_pool_state.h"

namespace plimsoll::pool {

using device::CopyKind;
using device::Queue;

namespace {

// The file tier reads and writes whole chunks. Calls `body` with each that `part` of a span meets,
// with the stretch of it that is meant, and with a buffer for the chunk.
template <typename Body>
void for_each_file_chunk(const FileTier& file, const FileSpan& span, const Interval& part,
                         const Body& body) {
  const std::int64_t chunk_bytes = file.options().chunk_bytes;
  const auto buffer =
      std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(chunk_bytes));
  for (std::int64_t begin = part.begin / chunk_bytes * chunk_bytes; begin < part.end;
       begin += chunk_bytes) {
    const Interval chunk{begin, std::min(begin + chunk_bytes, span.bytes)};
    body(chunk, intersect(chunk, part), buffer.get());
  }
}

}  // namespace

BlockId TensorPool::State::allocate_below(std::int64_t bytes, BlockOwner* owner) {
  if (bytes <= 0 || owner == nullptr)
    throw InvalidArgument(
        fmt::format("a block of {} bytes below the arena: more than 0 and an "
                    "owner are needed",
                    bytes));
  const BlockId id = take_slot();
  Block& block = blocks_[id.index()];
  try {
    block.host = take_host_span_or_throw(bytes);
    if (!block.host.valid()) {
      block.file = take_file_span(bytes);
      if (host_.file()->options().verify_checksums) write_zeros(block.file);
    }
  } catch (...) {
    drop_copy(id);
    give_slot(id);
    throw;
  }
  block.residence = block.host.valid() ? Residence::kHost : Residence::kFile;
  block.bytes = bytes;
  block.range_bytes = align_up(bytes, arena_.alignment());
  block.owner = owner;
  ++totals_.allocations;
  ++totals_.blocks;
  return id;
}

// So that parts of it can be written: a chunk of the file is read, with its checksum, to change a
// part of it.
void TensorPool::State::write_zeros(const FileSpan& span) {
  FileTier& file = *host_.file();
  for_each_file_chunk(file, span, {0, span.bytes},
                      [&](const Interval& chunk, const Interval&, std::byte* buffer) {
                        std::memset(buffer, 0, static_cast<std::size_t>(chunk.length()));
                        file.write(span, chunk.begin, buffer, chunk.length());
                      });
}

// The block, settled: its bytes do not move of themselves meanwhile.
Block& TensorPool::State::settled(BlockId id, std::int64_t offset, std::int64_t bytes) {
  Block& block = at(id);
  if (offset < 0 || bytes < 0 || bytes > block.bytes - offset)
    throw InvalidArgument(fmt::format("bytes [{}, {}) of block {} of {} bytes", offset,
                                      offset + bytes, id.value(), block.bytes));
  if (block.moving_index >= 0) finish_move(id);
  return block;
}

void TensorPool::State::copy_from_buffer(void* destination, const void* buffer, std::int64_t bytes,
                                         Side side) {
  if (side == Side::kDevice)
    device_.copy_blocking(destination, buffer, bytes, CopyKind::kHostToDevice);
  else if (bytes > 0)
    std::memcpy(destination, buffer, static_cast<std::size_t>(bytes));
}

void TensorPool::State::copy_to_buffer(void* buffer, const void* source, std::int64_t bytes,
                                       Side side) {
  if (side == Side::kDevice)
    device_.copy_blocking(buffer, source, bytes, CopyKind::kDeviceToHost);
  else if (bytes > 0)
    std::memcpy(buffer, source, static_cast<std::size_t>(bytes));
}

// From and to a block's host span; one without bytes has no address.
void TensorPool::State::read_span(Block& block, std::int64_t offset, void* destination,
                                  std::int64_t bytes, Side side) {
  if (bytes == 0) return;
  const auto* source = static_cast<const std::byte*>(block.host.data) + offset;
  if (side == Side::kDevice) {
    if (is_ahead_) device_.wait(Queue::kCompute, block.written_below);
    device_.copy(destination, source, bytes, CopyKind::kHostToDevice, Queue::kCompute);
    if (is_ahead_) block.read_below = device_.compute_mark();
  } else {
    settle_host();
    std::memcpy(destination, source, static_cast<std::size_t>(bytes));
  }
}

void TensorPool::State::write_span(Block& block, std::int64_t offset, const void* source,
                                   std::int64_t bytes, Side side) {
  if (bytes == 0) return;
  auto* destination = static_cast<std::byte*>(block.host.data) + offset;
  if (side == Side::kHost) {
    settle_host();
    std::memcpy(destination, source, static_cast<std::size_t>(bytes));
  } else if (is_ahead_) {
    block.written_below = copy_out(source, destination, bytes, device_.compute_mark());
    device_.wait(Queue::kCompute, block.written_below);  // before the source is written again
  } else {
    device_.copy_blocking(destination, source, bytes, CopyKind::kDeviceToHost);
  }
}

void TensorPool::State::read_part(BlockId id, std::int64_t offset, void* destination,
                                  std::int64_t bytes, Side side) {
  Block& block = settled(id, offset, bytes);
  side = side_of(destination, side);
  if (block.residence == Residence::kResident) {
    const void* source = base_ + arena_.offset(block.segment) + offset;
    if (side == Side::kDevice)
      device_.copy(destination, source, bytes, CopyKind::kDeviceToDevice, Queue::kCompute);
    else
      device_.copy_blocking(destination, source, bytes, CopyKind::kDeviceToHost);
    note_use(block);
    return;
  }
  if (block.host.valid()) {
    read_span(block, offset, destination, bytes, side);
  } else {
    FileTier& file = *host_.file();
    for_each_file_chunk(file, block.file, {offset, offset + bytes},
                        [&](const Interval& chunk, const Interval& wanted, std::byte* buffer) {
                          file.read(block.file, chunk.begin, buffer, chunk.length());
                          copy_from_buffer(
                              static_cast<std::byte*>(destination) + wanted.begin - offset,
                              buffer + wanted.begin - chunk.begin, wanted.length(), side);
                        });
  }
  totals_.prefetched_bytes += bytes;
}

void TensorPool::State::write_part(BlockId id, std::int64_t offset, const void* source,
                                   std::int64_t bytes, Side side) {
  Block& block = settled(id, offset, bytes);
  side = side_of(source, side);
  if (block.residence == Residence::kResident) {
    mark_written(id);
    void* destination = base_ + arena_.offset(block.segment) + offset;
    if (side == Side::kDevice)
      device_.copy(destination, source, bytes, CopyKind::kDeviceToDevice, Queue::kCompute);
    else
      device_.copy_blocking(destination, source, bytes, CopyKind::kHostToDevice);
    note_write(block);
    return;
  }
  if (block.host.valid()) {
    write_span(block, offset, source, bytes, side);
  } else {
    FileTier& file = *host_.file();
    for_each_file_chunk(file, block.file, {offset, offset + bytes},
                        [&](const Interval& chunk, const Interval& wanted, std::byte* buffer) {
                          if (wanted.length() < chunk.length())
                            file.read(block.file, chunk.begin, buffer, chunk.length());
                          copy_to_buffer(
                              buffer + wanted.begin - chunk.begin,
                              static_cast<const std::byte*>(source) + wanted.begin - offset,
                              wanted.length(), side);
                          file.write(block.file, chunk.begin, buffer, chunk.length());
                        });
  }
  totals_.offloaded_bytes += bytes;
}

}  // namespace plimsoll::pool
