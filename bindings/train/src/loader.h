// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "plimsoll/data/dataset.h"
#include "plimsoll/models/model.h"

namespace plimsoll::train {

// Makes batches of a data set in the shape a model takes. The last batch of an epoch is smaller
// where the batch size does not divide the set.
class Loader {
 public:
  // Errors: InvalidArgument where the data has more classes than the model.
  Loader(std::shared_ptr<const data::Dataset> data, const models::InputShape& shape,
         std::int64_t batch, std::uint64_t seed);

  std::int64_t steps_per_epoch() const;
  // The batch of a step since the beginning, in the order of its epoch.
  models::Batch batch_of_step(std::int64_t step);

 private:
  std::shared_ptr<const data::Dataset> data_;
  models::InputShape shape_;
  std::int64_t batch_;
  std::uint64_t seed_;
  std::int64_t epoch_ = -1;
  std::vector<std::int64_t> order_;
};

// Makes a batch of the samples `indices`.
models::Batch load_samples(const data::Dataset& data, const models::InputShape& shape,
                           const std::vector<std::int64_t>& indices);

}  // namespace plimsoll::train
