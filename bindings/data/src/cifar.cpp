// SPDX-License-Identifier: Apache-2.0
// The binary form of CIFAR-10: records of one label byte and 3 x 1024 bytes, red, green, blue.
// Source: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.
#include <array>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/data/dataset.h"

#include "byte_reader.h"

namespace plimsoll::data {

ImageSet read_cifar10(const std::vector<std::filesystem::path>& batches) {
  ImageSet set;
  set.channels = 3;
  set.height = set.width = 32;
  std::array<std::uint8_t, 1 + 3 * 1024> record{};
  for (const std::filesystem::path& path : batches) {
    ByteReader reader(path);
    std::int64_t number = 0;
    do {
      const std::int64_t place = reader.position();
      reader.read(record, fmt::format("record {} (1 label and 3072 pixels)", number));
      if (record[0] > 9)
        reader.refuse(place,
                      fmt::format("label {} in record {}, expected 0 to 9", record[0], number));
      set.labels.push_back(record[0]);
      set.pixels.insert(set.pixels.end(), record.begin() + 1, record.end());
      ++number;
    } while (!reader.at_end());
  }
  return set;
}

}  // namespace plimsoll::data
