// SPDX-License-Identifier: Apache-2.0
// The words in which a graph is told: ids, kinds, phases, types, and their names in files.
#pragma once

#include <cstdint>
#include <string_view>

#include "plimsoll/base/id.h"

namespace plimsoll::graph {

using StorageId = Id<struct StorageTag>;
using ValueId = Id<struct ValueTag>;
using OpId = Id<struct OpTag>;

enum class ValueKind : std::uint8_t {
  kActivation,
  kInput,
  kParameter,
  kGradient,
  kOptimizerState,
  kOutput,
};
enum class Phase : std::uint8_t { kForward, kLoss, kBackward, kOptimizer };
enum class DataType : std::uint8_t {
  kUnknown,
  kFloat32,
  kFloat64,
  kFloat16,
  kBFloat16,
  kInt8,
  kUInt8,
  kInt16,
  kInt32,
  kInt64,
  kBool,
};
// Why one op has to wait for another. Where several reasons hold, the first in this order stands.
enum class EdgeKind : std::uint8_t {
  kData,    // reads what the other writes
  kAnti,    // overwrites what the other reads
  kOutput,  // overwrites what the other wrote
  kOrder,   // asked for: OpSpec::after, random ops, ops with side effects
};
// Bits of Graph::flags.
enum OpFlag : std::uint8_t {
  kNoFlags = 0,
  kRandom = 1,             // draws from a generator: random ops keep their mutual order
  kHostSynchronising = 2,  // makes the host wait for the device
  kRecomputable = 4,       // running it again gives the same bits
  kSideEffect = 8,         // changes state outside of the graph: such ops keep their mutual order
};

// Names as they stand in files, and back; parse functions return false for an unknown name.
std::string_view value_kind_name(ValueKind kind);
std::string_view phase_name(Phase phase);
std::string_view data_type_name(DataType type);
std::string_view edge_kind_name(EdgeKind kind);
bool parse_value_kind(std::string_view name, ValueKind& kind);
bool parse_phase(std::string_view name, Phase& phase);
bool parse_data_type(std::string_view name, DataType& type);
// Bytes of one element; 0 for kUnknown.
int data_type_bytes(DataType type);

}  // namespace plimsoll::graph
