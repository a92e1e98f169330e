// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"
#include "plimsoll/explain/pickle.h"

namespace plimsoll::explain {
namespace {

// What a pickle could make us do, and must not. The name is Python's.
const char* refused_opcode(unsigned char code) {
  switch (code) {
    case 'c':
      return "GLOBAL";
    case 0x93:
      return "STACK_GLOBAL";
    case 'R':
      return "REDUCE";
    case 'b':
      return "BUILD";
    case 'i':
      return "INST";
    case 'o':
      return "OBJ";
    case 0x81:
      return "NEWOBJ";
    case 0x92:
      return "NEWOBJ_EX";
    case 'P':
      return "PERSID";
    case 'Q':
      return "BINPERSID";
    case 0x82:
      return "EXT1";
    case 0x83:
      return "EXT2";
    case 0x84:
      return "EXT4";
    case 0x97:
      return "NEXT_BUFFER";
    case 0x98:
      return "READONLY_BUFFER";
    default:
      return nullptr;
  }
}

// Opcodes of protocols 0 and 1, which write numbers and texts as lines.
bool is_line_opcode(unsigned char code) {
  return std::strchr("ILFSVgp", code) != nullptr && code != 0;
}

}  // namespace

class PickleReader {
 public:
  PickleReader(std::string_view bytes, PickleDocument& document)
      : bytes_(bytes), document_(document) {}

  void read() {
    while (true) {
      opcode_at_ = at_;
      const unsigned char code = byte();
      if (code == '.') break;
      if (!run_scalar(code) && !run_container(code) && !run_stack(code)) refuse_opcode(code);
    }
    if (stack_.empty()) fail("STOP with nothing to return");
    document_.root_ = stack_.back();
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw InvalidFile(document_.file_, fmt::format("byte {}", opcode_at_), problem);
  }
  [[noreturn]] void refuse_opcode(unsigned char code) const {
    if (const char* name = refused_opcode(code))
      fail(fmt::format("the opcode {} can run code and is refused: a memory snapshot is plain data",
                       name));
    if (is_line_opcode(code))
      fail(fmt::format("the opcode '{}' belongs to protocol 0 or 1; protocols 2 to 5 are read",
                       static_cast<char>(code)));
    fail(fmt::format("0x{:02x} is no opcode", code));
  }
  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size() - at_)
      fail(fmt::format("{} bytes are needed where {} are left", count, bytes_.size() - at_));
    const std::string_view taken = bytes_.substr(at_, count);
    at_ += count;
    return taken;
  }
  unsigned char byte() { return static_cast<unsigned char>(take(1)[0]); }
  std::uint64_t little_endian(std::size_t count) {
    std::uint64_t value = 0;
    const std::string_view digits = take(count);
    for (std::size_t i = 0; i < count; ++i)
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(digits[i])) << (8 * i);
    return value;
  }

  PickleId push(PickleValue value) {
    document_.values_.push_back(std::move(value));
    document_.positions_.push_back(static_cast<std::int64_t>(opcode_at_));
    stack_.push_back(static_cast<PickleId>(document_.values_.size() - 1));
    return stack_.back();
  }
  void push_integer(std::int64_t value) { push({PickleKind::kInteger, value, 0, {}, {}}); }
  void push_text(std::string_view text) { push({PickleKind::kText, 0, 0, text, {}}); }
  void push_list(std::vector<PickleId> children) {
    push({PickleKind::kList, 0, 0, {}, std::move(children)});
  }
  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  PickleId top() const {
    if (stack_.size() <= floor()) fail("the stack is empty");
    return stack_.back();
  }
  PickleId pop() {
    const PickleId value = top();
    stack_.pop_back();
    return value;
  }
  std::vector<PickleId> pop_mark() {
    if (marks_.empty()) fail("there is no MARK to go back to");
    const std::size_t mark = marks_.back();
    marks_.pop_back();
    std::vector<PickleId> values(stack_.begin() + static_cast<std::ptrdiff_t>(mark), stack_.end());
    stack_.resize(mark);
    return values;
  }
  PickleValue& container(PickleKind kind, const char* what) {
    PickleValue& value = document_.values_[top()];
    if (value.kind != kind) fail(fmt::format("{} what is none", what));
    return value;
  }
  void append(PickleValue& value, const std::vector<PickleId>& children) {
    value.children.insert(value.children.end(), children.begin(), children.end());
  }
  void check_pairs(const std::vector<PickleId>& values) const {
    if (values.size() % 2 != 0) fail("a dictionary's last key has no value");
  }

  void push_long(std::uint64_t count) {
    if (count > 8) {
      // Python writes 2^63 and above, and some smaller numbers, with a leading zero byte.
      const std::string_view digits = take(count);
      for (const char digit : digits.substr(8))
        if (digit != 0) fail("an integer beyond 64 bits");
      if ((digits[7] & 0x80) != 0) fail("an integer beyond 64 bits");
      at_ -= count;
      const std::uint64_t low = little_endian(8);
      take(count - 8);
      return push_integer(static_cast<std::int64_t>(low));
    }
    std::uint64_t value = count == 0 ? 0 : little_endian(count);
    if (count > 0 && count < 8 && (value >> (8 * count - 1) & 1) != 0)
      value |= ~std::uint64_t{0} << (8 * count);
    push_integer(static_cast<std::int64_t>(value));
  }
  void push_float() {
    std::uint64_t bits = 0;
    for (const char digit : take(8)) bits = bits << 8 | static_cast<unsigned char>(digit);
    push({PickleKind::kFloat, 0, std::bit_cast<double>(bits), {}, {}});
  }

  bool run_scalar(unsigned char code) {
    switch (code) {
      case 'N':
        push({});
        return true;
      case 0x88:
        push({PickleKind::kBool, 1, 0, {}, {}});
        return true;
      case 0x89:
        push({PickleKind::kBool, 0, 0, {}, {}});
        return true;
      case 'K':
        push_integer(byte());
        return true;
      case 'M':
        push_integer(static_cast<std::int64_t>(little_endian(2)));
        return true;
      case 'J':
        push_integer(static_cast<std::int32_t>(little_endian(4)));
        return true;
      case 0x8a:
        push_long(byte());
        return true;
      case 0x8b:
        push_long(little_endian(4));
        return true;
      case 'G':
        push_float();
        return true;
      case 0x8c:  // SHORT_BINUNICODE
      case 'C':   // SHORT_BINBYTES
      case 'U':
        push_text(take(byte()));
        return true;
      case 'X':  // BINUNICODE
      case 'B':  // BINBYTES
      case 'T':
        push_text(take(little_endian(4)));
        return true;
      case 0x8d:  // BINUNICODE8
      case 0x8e:  // BINBYTES8
      case 0x96:
        push_text(take(little_endian(8)));
        return true;
      default:
        return false;
    }
  }

  bool run_container(unsigned char code) {
    switch (code) {
      case ']':   // EMPTY_LIST
      case ')':   // EMPTY_TUPLE
      case 0x8f:  // EMPTY_SET
        push_list({});
        return true;
      case 'l':   // LIST
      case 't':   // TUPLE
      case 0x91:  // FROZENSET
        push_list(pop_mark());
        return true;
      case 0x85:
        push_tuple(1);
        return true;
      case 0x86:
        push_tuple(2);
        return true;
      case 0x87:
        push_tuple(3);
        return true;
      case 'a': {
        const PickleId value = pop();
        container(PickleKind::kList, "APPEND to").children.push_back(value);
        return true;
      }
      case 'e':  // APPENDS
      case 0x90: {
        const std::vector<PickleId> values = pop_mark();
        append(container(PickleKind::kList, "APPENDS to"), values);
        return true;
      }
      case '}':
        push({PickleKind::kDictionary, 0, 0, {}, {}});
        return true;
      case 'd': {
        std::vector<PickleId> values = pop_mark();
        check_pairs(values);
        push({PickleKind::kDictionary, 0, 0, {}, std::move(values)});
        return true;
      }
      case 's': {
        const PickleId value = pop();
        const PickleId key = pop();
        append(container(PickleKind::kDictionary, "SETITEM of"), {key, value});
        return true;
      }
      case 'u': {
        const std::vector<PickleId> values = pop_mark();
        check_pairs(values);
        append(container(PickleKind::kDictionary, "SETITEMS of"), values);
        return true;
      }
      default:
        return false;
    }
  }
  void push_tuple(int count) {
    std::vector<PickleId> children(static_cast<std::size_t>(count));
    for (std::size_t i = children.size(); i-- > 0;) children[i] = pop();
    push_list(std::move(children));
  }

  bool run_stack(unsigned char code) {
    switch (code) {
      case 0x80: {
        const int protocol = byte();
        if (protocol < 2 || protocol > 5)
          fail(fmt::format("protocol {}; protocols 2 to 5 are read", protocol));
        return true;
      }
      case 0x95:
        take(8);
        return true;  // FRAME: a hint for reading ahead
      case '(':
        marks_.push_back(stack_.size());
        return true;
      case '0':
        pop();
        return true;
      case '1':
        pop_mark();
        return true;
      case '2':
        stack_.push_back(top());
        return true;
      case 'h':
        get(byte());
        return true;
      case 'j':
        get(little_endian(4));
        return true;
      case 'q':
        put(byte());
        return true;
      case 'r':
        put(little_endian(4));
        return true;
      case 0x94:
        put(memo_count_);
        return true;
      default:
        return false;
    }
  }
  void put(std::uint64_t index) {
    // A file cannot have more entries than bytes; a larger number would only cost memory.
    if (index >= bytes_.size())
      fail(fmt::format("memo entry {} in a file of {} bytes", index, bytes_.size()));
    const PickleId value = top();
    if (index >= memo_.size()) memo_.resize(index + 1, kNoValue);
    if (memo_[index] == kNoValue) ++memo_count_;
    memo_[index] = value;
  }
  void get(std::uint64_t index) {
    if (index >= memo_.size() || memo_[index] == kNoValue)
      fail(fmt::format("memo entry {} does not exist", index));
    stack_.push_back(memo_[index]);
  }

  static constexpr PickleId kNoValue = std::numeric_limits<PickleId>::max();

  std::string_view bytes_;
  PickleDocument& document_;
  std::size_t at_ = 0;
  std::size_t opcode_at_ = 0;
  std::vector<PickleId> stack_;
  std::vector<std::size_t> marks_;
  std::vector<PickleId> memo_;
  std::uint64_t memo_count_ = 0;
};

PickleDocument::PickleDocument(std::string_view bytes, std::string file) : file_(std::move(file)) {
  if (bytes.size() >= std::numeric_limits<PickleId>::max())
    throw InvalidFile(file_, "", fmt::format("{} bytes; at most 4 GiB are read", bytes.size()));
  PickleReader(bytes, *this).read();
}

}  // namespace plimsoll::explain
