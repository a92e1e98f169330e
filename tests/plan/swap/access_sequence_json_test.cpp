// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/plan/access_sequence_json.h"

#include <string>

#include <gtest/gtest.h>

#include "plimsoll/base/error.h"

#include "step_nets.h"

namespace plimsoll::plan {
namespace {

TEST(AccessSequenceJson, ReadsBackWhatItWrites) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const AccessSequence sequence = testing::random_sequence(seed, {});
    EXPECT_EQ(access_sequence_from_json(access_sequence_to_json(sequence), "text"), sequence);
  }
  const AccessSequence net = testing::unet_step(1, 32);
  EXPECT_EQ(access_sequence_from_json(access_sequence_to_json(net), "text"), net);
}

TEST(AccessSequenceJson, NamesThePlaceOfEveryMistake) {
  const std::string head = R"({"format": "plimsoll-access-sequence", "version": 1, )";
  const std::string one_op = R"("ops": [{"writes": [0]}], )";
  const struct {
    std::string text;
    std::string position;
  } cases[] = {
      {"{\"format\": \x01", "byte 12"},
      {"[]", "the file"},
      {R"({"format": "other", "version": 1, "ops": [], "storages": []})", "format"},
      {R"({"format": "plimsoll-access-sequence", "version": 2})", "version"},
      {head + R"("ops": []})", "storages"},
      {head + R"("storages": {}, "ops": []})", "storages"},
      {head + R"("storages": [], "ops": []})", "the sequence"},
      {head + R"("storages": [], "ops": [], "extra": 1})", "extra"},
      {head + one_op + R"("storages": [{"bytes": 1}]})", "storages[0].kind"},
      {head + one_op + R"("storages": [{"bytes": 1, "kind": "old"}]})", "storages[0].kind"},
      {head + one_op + R"("storages": [{"bytes": 1.5, "kind": "transient"}]})",
       "storages[0].bytes"},
      {head + one_op + R"("storages": [{"bytes": -1, "kind": "transient"}]})", "storages[0]"},
      {head + one_op + R"("storages": [{"bytes": 9e30, "kind": "transient"}]})",
       "storages[0].bytes"},
      {head + one_op + R"("storages": [{"bytes": 1, "kind": "transient", "movable": 0}]})",
       "storages[0].movable"},
      {head + one_op + R"("storages": [{"bytes": 1, "kind": "transient", "released_after": 2}]})",
       "storages[0].released_after"},
      {head + one_op + R"("storages": [{"bytes": 1, "kind": "persistent", "released_after": 0}]})",
       "storages[0]"},
      {head + R"("ops": [{"writes": [1]}], "storages": [{"bytes": 1, "kind": "persistent"}]})",
       "ops[0]"},
      {head + R"("ops": [{"writes": 0}], "storages": [{"bytes": 1, "kind": "persistent"}]})",
       "ops[0].writes"},
      {head + R"("ops": [{"reads": [99999999999]}], "storages": []})", "ops[0]"},
      {head + R"("ops": [{"name": 3}], "storages": []})", "ops[0].name"},
      {head + R"("ops": [3], "storages": []})", "ops[0]"},
  };
  for (const auto& [text, position] : cases) {
    SCOPED_TRACE(text);
    try {
      access_sequence_from_json(text, "step.json");
      ADD_FAILURE() << "was read";
    } catch (const InvalidFile& error) {
      EXPECT_EQ(error.file(), "step.json");
      EXPECT_EQ(error.position(), position);
    }
  }
}

}  // namespace
}  // namespace plimsoll::plan
