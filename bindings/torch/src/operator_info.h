// SPDX-License-Identifier: Apache-2.0
// What a session has to know of an operator, read once from its schema.
//
// Nouns: OperatorInfo, OperatorInfos, OperatorClass.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/flat_hash_map.h>

#include "list_operators.h"

namespace plimsoll::detail {

enum class OperatorClass : std::uint8_t {
  kCompute,    // reads or writes the bytes of its operands
  kMetadata,   // looks at sizes and strides only: views, empty_like, resizing of views
  kFactory,    // makes a result; its operands' bytes are not read (zeros_like)
  kComposite,  // is made of other operators, which are seen in its place
};

struct OperatorInfo {
  OperatorClass kind = OperatorClass::kCompute;
  // Bit i: argument i is written. Arguments beyond 63 share bit 63.
  std::uint64_t writes = 0;
  // Bit i: argument i is declared as one tensor, not as a list or an option of tensors.
  std::uint64_t plain_tensors = 0;
  std::uint64_t hash = 0;  // of name and overload; the same in every process
  // A run that fails inside leaves no trace: nothing is written, no random numbers are drawn.
  bool can_rerun = false;
  // Each element is rounded exactly: may be run in chunks.
  bool can_chunk = false;
  bool is_lazy_clone = false;  // shares its operand's memory until one of the two is written
  bool is_collective = false;  // of torch.distributed: writes its operands after it has returned
  int arguments = 0;
  int returns = 0;
  std::string name;  // "aten::convolution"
  ListShape lists;   // of an operator that goes by list entry

  bool writes_argument(int index) const { return (writes >> (index < 63 ? index : 63) & 1) != 0; }
};

// Threads: safe. The references stay good for the life of the table.
class OperatorInfos {
 public:
  const OperatorInfo& of(const c10::OperatorHandle& op);

 private:
  std::mutex mutex_;
  // By the schema's address: schemas of registered operators do not move. Node-based values, so
  // that references survive growth.
  ska::flat_hash_map<const c10::FunctionSchema*, std::unique_ptr<OperatorInfo>> infos_;
};

}  // namespace plimsoll::detail
