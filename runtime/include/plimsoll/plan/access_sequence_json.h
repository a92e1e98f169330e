// SPDX-License-Identifier: Apache-2.0
// Access sequences as JSON, so that recorded steps can be kept, measured and compared.
//
// Noun: the format, version 1. Positions as in access_sequence.h; ids are indices into the arrays.
//
//   {"format": "plimsoll-access-sequence", "version": 1,
//    "storages": [{"bytes": 4096, "kind": "persistent"},
//                 {"bytes": 128, "kind": "transient", "movable": false, "released_after": 7}],
//    "ops": [{"name": "aten::mm", "scratch_bytes": 0, "reads": [0], "writes": [1],
//             "reads_previous": [], "writes_previous": []}]}
//
// `movable` is true, `released_after` the last access, `name` empty, `scratch_bytes` 0 and every
// list empty where missing; the `previous` lists name instances that the step before made. Unknown
// keys are errors.
#pragma once

#include <string>
#include <string_view>

#include "plimsoll/plan/access_sequence.h"

namespace plimsoll::plan {

// Returns the text, one storage and one operator a line. Reading it gives an equal sequence.
std::string access_sequence_to_json(const AccessSequence& sequence);

// Parses the text; `file_name` only names it in errors.
// Errors: InvalidFile with the byte of a syntax error or the path of a wrong value.
AccessSequence access_sequence_from_json(std::string_view text, const std::string& file_name);

}  // namespace plimsoll::plan
