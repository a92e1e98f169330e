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
    if (const HostSpan span = take_host_span(bytes); span.valid()) {
      block.host = span;
    } else if (host_.file() != nullptr) {
      block.file = take_file_span(bytes);
      if (host_.file()->options().verify_checksums) write_zeros(block.file);
    } else {
      host_.allocate(bytes);  // throws HostOutOfMemory with the tier's figures
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

void TensorPool::State::copy_from_host(void* destination, const void* source, std::int64_t bytes) {
  if (contains(destination))
    device_.copy_blocking(destination, source, bytes, CopyKind::kHostToDevice);
  else
    std::memcpy(destination, source, static_cast<std::size_t>(bytes));
}

void TensorPool::State::copy_to_host(void* destination, const void* source, std::int64_t bytes) {
  if (contains(source))
    device_.copy_blocking(destination, source, bytes, CopyKind::kDeviceToHost);
  else
    std::memcpy(destination, source, static_cast<std::size_t>(bytes));
}

void TensorPool::State::read_part(BlockId id, std::int64_t offset, void* destination,
                                  std::int64_t bytes) {
  const Block& block = settled(id, offset, bytes);
  if (block.residence == Residence::kResident) {
    const CopyKind kind =
        contains(destination) ? CopyKind::kDeviceToDevice : CopyKind::kDeviceToHost;
    device_.copy_blocking(destination, base_ + arena_.offset(block.segment) + offset, bytes, kind);
    return;
  }
  if (block.host.valid()) {
    copy_from_host(destination, static_cast<const std::byte*>(block.host.data) + offset, bytes);
  } else {
    FileTier& file = *host_.file();
    for_each_file_chunk(file, block.file, {offset, offset + bytes},
                        [&](const Interval& chunk, const Interval& wanted, std::byte* buffer) {
                          file.read(block.file, chunk.begin, buffer, chunk.length());
                          copy_from_host(
                              static_cast<std::byte*>(destination) + wanted.begin - offset,
                              buffer + wanted.begin - chunk.begin, wanted.length());
                        });
  }
  totals_.prefetched_bytes += bytes;
}

void TensorPool::State::write_part(BlockId id, std::int64_t offset, const void* source,
                                   std::int64_t bytes) {
  const Block& block = settled(id, offset, bytes);
  if (block.residence == Residence::kResident) {
    mark_written(id);
    const CopyKind kind = contains(source) ? CopyKind::kDeviceToDevice : CopyKind::kHostToDevice;
    device_.copy_blocking(base_ + arena_.offset(block.segment) + offset, source, bytes, kind);
    return;
  }
  if (block.host.valid()) {
    copy_to_host(static_cast<std::byte*>(block.host.data) + offset, source, bytes);
  } else {
    FileTier& file = *host_.file();
    for_each_file_chunk(file, block.file, {offset, offset + bytes},
                        [&](const Interval& chunk, const Interval& wanted, std::byte* buffer) {
                          if (wanted.length() < chunk.length())
                            file.read(block.file, chunk.begin, buffer, chunk.length());
                          copy_to_host(
                              buffer + wanted.begin - chunk.begin,
                              static_cast<const std::byte*>(source) + wanted.begin - offset,
                              wanted.length());
                          file.write(block.file, chunk.begin, buffer, chunk.length());
                        });
  }
  totals_.offloaded_bytes += bytes;
}

}  // namespace plimsoll::pool
