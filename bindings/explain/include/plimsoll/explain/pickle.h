// SPDX-License-Identifier: Apache-2.0
// Python's pickle format, data only: numbers, texts, lists, tuples, dictionaries.
//
// Nouns: PickleDocument, PickleValue, PickleWriter.
//
// A pickle is a program for a stack machine. Opcodes that build data are carried out; those that
// name or call code (GLOBAL, REDUCE, BUILD, ...) are refused, so that reading a file can run
// nothing. Source: the comments of CPython's Lib/pickletools.py; protocols 2 to 5.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace plimsoll::explain {

enum class PickleKind : std::uint8_t { kNone, kBool, kInteger, kFloat, kText, kList, kDictionary };

using PickleId = std::uint32_t;

// One object. Tuples and sets are lists, bytes are text. Objects may be shared and may contain
// themselves: whoever walks them needs a bound of its own.
struct PickleValue {
  PickleKind kind = PickleKind::kNone;
  std::int64_t integer = 0;        // also 0 or 1 of a kBool
  double number = 0;               // of a kFloat
  std::string_view text;           // of a kText; points into the file's bytes
  std::vector<PickleId> children;  // of a list, in order; of a dictionary, key and value in turn
};

class PickleDocument {
 public:
  // Reads `bytes`, which must outlive the document. `file` names the origin in messages.
  // Cost: O(bytes) time, at most kBytesPerByte bytes of memory for each byte of the file, however
  // it is made (read_snapshot's result included); no recursion. Errors: InvalidFile with the byte
  // offset: truncated, unknown opcodes, opcodes that name or call code (by their name), protocols
  // other than 2 to 5, integers beyond 64 bits, an unbalanced stack, unknown memo entries, nothing
  // to return.
  PickleDocument(std::string_view bytes, std::string file);

  static constexpr std::int64_t kBytesPerByte = 1024;

  const PickleValue& operator[](PickleId id) const { return values_[id]; }
  PickleId root() const { return root_; }
  const std::string& file() const { return file_; }
  // The byte at which the object's opcode stands.
  std::int64_t position(PickleId id) const { return positions_[id]; }

 private:
  friend class PickleReader;
  std::vector<PickleValue> values_;
  std::vector<std::int64_t> positions_;
  PickleId root_ = 0;
  std::string file_;
};

// Writes protocol 4 with the opcodes that the memory viewer on the web understands. Texts that
// repeat are written once. Not thread-safe. The caller nests begin and end calls properly.
class PickleWriter {
 public:
  PickleWriter();
  void integer(std::int64_t value);
  void text(std::string_view value);
  void boolean(bool value);
  void none();
  void begin_list();
  void end_list();
  void begin_dictionary();  // then key, value, key, value ...
  void end_dictionary();
  // Writes the list again that the given call of begin_list has made; see last_list().
  void repeat(std::uint32_t memo);
  // The memo number of the list begun last.
  std::uint32_t last_list() const { return last_list_; }
  // Ends the pickle and returns it.
  std::string finish();

 private:
  std::uint32_t memoize();
  void value_done();
  void get(std::uint32_t memo);
  std::string out_;
  std::uint32_t next_memo_ = 0;
  std::uint32_t last_list_ = 0;
  // For each open container the values since the last APPENDS; -1 for a dictionary.
  std::vector<int> open_;
  std::unordered_map<std::string, std::uint32_t> texts_;  // memo numbers
};

}  // namespace plimsoll::explain
