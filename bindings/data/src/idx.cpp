// SPDX-License-Identifier: Apache-2.0
// The IDX format: two zero bytes, the element type (8: unsigned byte), the number of dimensions,
// each dimension as a big-endian 32-bit number, then the elements. Source: LeCun, Cortes, Burges,
// "The MNIST database of handwritten digits".
#include <algorithm>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/data/dataset.h"

#include "byte_reader.h"

namespace plimsoll::data {
namespace {

// More than any set of this kind; keeps a damaged header from asking for all memory.
constexpr std::int64_t kLargestSet = std::int64_t{1} << 33;

struct IdxArray {
  std::vector<std::int64_t> sizes;
  std::vector<std::uint8_t> elements;
};

IdxArray read_array(const std::filesystem::path& path, std::uint32_t dimensions) {
  ByteReader reader(path);
  const std::uint32_t magic = reader.read_u32("the magic number");
  const std::uint32_t expected = 0x800 | dimensions;
  if (magic != expected) {
    reader.refuse(0, fmt::format("magic number {:#010x}, expected {:#010x} (unsigned bytes, {} "
                                 "dimensions)",
                                 magic, expected, dimensions));
  }
  IdxArray array;
  std::int64_t total = 1;
  for (std::uint32_t i = 0; i < dimensions; ++i) {
    const std::int64_t place = reader.position();
    const std::int64_t size = reader.read_u32(fmt::format("the size of dimension {}", i));
    if (size == 0 || size > kLargestSet / total)
      reader.refuse(place, fmt::format("dimension {} is {}, which no image set has", i, size));
    total *= size;
    array.sizes.push_back(size);
  }
  // In pieces: a header that promises more than the file holds must not take the memory first.
  constexpr std::int64_t kPiece = std::int64_t{1} << 24;
  for (std::int64_t done = 0; done < total;) {
    const std::int64_t piece = std::min(kPiece, total - done);
    array.elements.resize(static_cast<std::size_t>(done + piece));
    reader.read({array.elements.data() + done, static_cast<std::size_t>(piece)},
                fmt::format("the {} elements", total));
    done += piece;
  }
  if (!reader.at_end())
    reader.refuse(reader.position(), fmt::format("bytes follow the {} elements", total));
  return array;
}

}  // namespace

ImageSet read_idx(const std::filesystem::path& images, const std::filesystem::path& labels) {
  IdxArray pixels = read_array(images, 3);
  IdxArray classes = read_array(labels, 1);
  if (pixels.sizes[0] != classes.sizes[0]) {
    ByteReader(labels).refuse(4, fmt::format("{} labels, expected {} as in '{}'", classes.sizes[0],
                                             pixels.sizes[0], images.string()));
  }
  ImageSet set;
  set.height = pixels.sizes[1];
  set.width = pixels.sizes[2];
  set.pixels = std::move(pixels.elements);
  set.labels = std::move(classes.elements);
  set.classes = 1 + *std::max_element(set.labels.begin(), set.labels.end());
  return set;
}

}  // namespace plimsoll::data
