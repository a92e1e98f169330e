// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "plimsoll/explain/pickle.h"

namespace plimsoll::explain {
namespace {

void put_little_endian(std::string& out, std::uint64_t value, int count) {
  for (int i = 0; i < count; ++i) out.push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

}  // namespace

PickleWriter::PickleWriter() : out_("\x80\x04") {}

void PickleWriter::integer(std::int64_t value) {
  if (value >= 0 && value < 256) {
    out_.push_back('K');
    put_little_endian(out_, static_cast<std::uint64_t>(value), 1);
  } else if (value >= 0 && value < 65536) {
    out_.push_back('M');
    put_little_endian(out_, static_cast<std::uint64_t>(value), 2);
  } else if (value >= INT32_MIN && value <= INT32_MAX) {
    out_.push_back('J');
    put_little_endian(out_, static_cast<std::uint64_t>(value), 4);
  } else {
    out_ += "\x8a\x08";
    put_little_endian(out_, static_cast<std::uint64_t>(value), 8);
  }
  value_done();
}

// Lists are written in batches: a reader may pass a batch as the arguments of one call.
void PickleWriter::value_done() {
  constexpr int kBatch = 1000;
  if (open_.empty() || open_.back() < 0) return;
  if (++open_.back() < kBatch) return;
  open_.back() = 0;
  out_ += "e(";
}

std::uint32_t PickleWriter::memoize() {
  out_.push_back('\x94');
  return next_memo_++;
}

void PickleWriter::get(std::uint32_t memo) {
  if (memo < 256) {
    out_.push_back('h');
    put_little_endian(out_, memo, 1);
  } else {
    out_.push_back('j');
    put_little_endian(out_, memo, 4);
  }
}

void PickleWriter::text(std::string_view value) {
  const auto found = texts_.find(std::string(value));
  if (found != texts_.end()) {
    get(found->second);
    return value_done();
  }
  if (value.size() < 256) {
    out_.push_back('\x8c');
    put_little_endian(out_, value.size(), 1);
  } else {
    value = value.substr(0, UINT32_MAX);
    out_.push_back('X');
    put_little_endian(out_, value.size(), 4);
  }
  out_ += value;
  texts_.emplace(std::string(value), memoize());
  value_done();
}

void PickleWriter::boolean(bool value) {
  out_.push_back(value ? '\x88' : '\x89');
  value_done();
}

void PickleWriter::none() {
  out_.push_back('N');
  value_done();
}

void PickleWriter::begin_list() {
  out_.push_back(']');
  last_list_ = memoize();
  out_.push_back('(');
  open_.push_back(0);
}

void PickleWriter::end_list() {
  out_.push_back('e');
  open_.pop_back();
  value_done();
}

void PickleWriter::begin_dictionary() {
  out_ += "}(";
  open_.push_back(-1);
}

void PickleWriter::end_dictionary() {
  out_.push_back('u');
  open_.pop_back();
  value_done();
}

void PickleWriter::repeat(std::uint32_t memo) {
  get(memo);
  value_done();
}

std::string PickleWriter::finish() {
  out_.push_back('.');
  return std::move(out_);
}

}  // namespace plimsoll::explain
