// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/explain/pickle.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plimsoll/base/error.h"

namespace plimsoll::explain {
namespace {

using namespace std::string_literals;
using ::testing::HasSubstr;

std::string problem_of(const std::string& bytes) {
  try {
    const PickleDocument document(bytes, "x.pickle");
  } catch (const InvalidFile& error) {
    return error.position() + ": " + error.what();
  }
  return "accepted";
}

std::int64_t integer_of(const std::string& bytes) {
  const PickleDocument document(bytes, "x");
  EXPECT_EQ(document[document.root()].kind, PickleKind::kInteger);
  return document[document.root()].integer;
}

TEST(Pickle, ReadsIntegersOfEveryWidth) {
  EXPECT_EQ(integer_of("\x80\x02K\xff."s), 255);
  EXPECT_EQ(integer_of("\x80\x02M\x01\xff."s), 0xff01);
  EXPECT_EQ(integer_of("\x80\x02J\xfe\xff\xff\xff."s), -2);
  EXPECT_EQ(integer_of("\x80\x02\x8a\x00."s), 0);
  EXPECT_EQ(integer_of("\x80\x02\x8a\x01\xff."s), -1);
  EXPECT_EQ(integer_of("\x80\x02\x8a\x06\x00\x00\x00\x00\x00\x7f."s), std::int64_t{0x7f} << 40);
  EXPECT_EQ(integer_of("\x80\x02\x8a\x09\xff\xff\xff\xff\xff\xff\xff\x7f\x00."s), INT64_MAX);
  EXPECT_EQ(integer_of("\x80\x02\x8b\x02\x00\x00\x00\x01\x02."s), 0x201);
  EXPECT_THAT(problem_of("\x80\x02\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00."s),
              HasSubstr("64 bits"));
}

TEST(Pickle, ReadsListsDictionariesTuplesAndSharedObjects) {
  // {'a': [1, 2], 'b': (the same list, None, True, 2.5)}
  const std::string bytes =
      "\x80\x04}(\x8c\x01"
      "a]\x94(K\x01K\x02"
      "e\x8c\x01"
      "b(h\x00N\x88G\x40\x04\x00\x00\x00\x00\x00\x00tu."s;
  const PickleDocument document(bytes, "x");
  const PickleValue& root = document[document.root()];
  ASSERT_EQ(root.kind, PickleKind::kDictionary);
  ASSERT_EQ(root.children.size(), 4U);
  EXPECT_EQ(document[root.children[0]].text, "a");
  const PickleValue& tuple = document[root.children[3]];
  ASSERT_EQ(tuple.children.size(), 4U);
  EXPECT_EQ(tuple.children[0], root.children[1]);
  EXPECT_EQ(document[tuple.children[3]].number, 2.5);
}

TEST(Pickle, RefusesByNameWhatCouldRunCode) {
  const auto refused = [](const std::string& opcode) {
    return problem_of("\x80\x04K\x01"s + opcode + ".");
  };
  EXPECT_THAT(refused("cos\nsystem\n"), HasSubstr("byte 4: x.pickle"));
  EXPECT_THAT(refused("cos\nsystem\n"), HasSubstr("GLOBAL"));
  EXPECT_THAT(refused("\x93"), HasSubstr("STACK_GLOBAL"));
  EXPECT_THAT(refused("R"), HasSubstr("REDUCE"));
  EXPECT_THAT(refused("b"), HasSubstr("BUILD"));
  EXPECT_THAT(refused("i"), HasSubstr("INST"));
  EXPECT_THAT(refused("o"), HasSubstr("OBJ"));
  EXPECT_THAT(refused("\x81"), HasSubstr("NEWOBJ"));
  EXPECT_THAT(refused("\x92"), HasSubstr("NEWOBJ_EX"));
  EXPECT_THAT(refused("Q"), HasSubstr("BINPERSID"));
  EXPECT_THAT(refused("\x82\x01"), HasSubstr("EXT1"));
  EXPECT_THAT(refused("\x97"), HasSubstr("NEXT_BUFFER"));
  EXPECT_THAT(refused("I1\n"), HasSubstr("protocol 0"));
  EXPECT_THAT(refused("\xff"), HasSubstr("0xff"));
}

TEST(Pickle, NamesTheByteOfEveryKindOfDamage) {
  EXPECT_THAT(problem_of(""), HasSubstr("byte 0"));
  EXPECT_THAT(problem_of("\x80\x02"s), HasSubstr("byte 2"));
  EXPECT_THAT(problem_of("\x80\x06N."s), HasSubstr("protocol 6"));
  EXPECT_THAT(problem_of("\x80\x01N."s), HasSubstr("protocol 1"));
  EXPECT_THAT(problem_of("\x80\x02."s), HasSubstr("nothing to return"));
  EXPECT_THAT(problem_of("\x80\x02X\xff\xff\xff\xff"s
                         "abc."s),
              HasSubstr("byte 2"));
  EXPECT_THAT(problem_of("\x80\x02K\x01K\x02"
                         "a."s),
              HasSubstr("byte 6"));
  EXPECT_THAT(problem_of("\x80\x02t."s), HasSubstr("MARK"));
  EXPECT_THAT(problem_of("\x80\x02}(K\x01u."s), HasSubstr("no value"));
  EXPECT_THAT(problem_of("\x80\x02h\x07."s), HasSubstr("memo entry 7"));
  EXPECT_THAT(problem_of("\x80\x02Nr\xff\xff\xff\xff."s), HasSubstr("memo entry 4294967295"));
  // What lies below a MARK is out of reach until the MARK is gone.
  EXPECT_THAT(problem_of("\x80\x02]("s
                         "a."s),
              HasSubstr("empty"));
}

TEST(Pickle, WriterAndReaderAgree) {
  PickleWriter writer;
  writer.begin_list();
  const std::uint32_t outer = writer.last_list();
  for (const std::int64_t value :
       {0L, 255L, 256L, 65535L, 65536L, -1L, -2147483648L, 2147483648L, INT64_MAX, INT64_MIN})
    writer.integer(value);
  writer.text("twice");
  writer.text("twice");
  writer.text(std::string(300, 'x'));
  writer.boolean(true);
  writer.none();
  writer.end_list();
  EXPECT_EQ(outer, 0U);
  const std::string bytes = writer.finish();
  const PickleDocument document(bytes, "x");
  const PickleValue& root = document[document.root()];
  ASSERT_EQ(root.children.size(), 15U);
  EXPECT_EQ(document[root.children[5]].integer, -1);
  EXPECT_EQ(document[root.children[8]].integer, INT64_MAX);
  EXPECT_EQ(document[root.children[9]].integer, INT64_MIN);
  EXPECT_EQ(root.children[10], root.children[11]);
  EXPECT_EQ(document[root.children[12]].text.size(), 300U);
}

TEST(Pickle, LongListsAreWrittenInBatches) {
  PickleWriter writer;
  writer.begin_list();
  for (int i = 0; i < 2500; ++i) writer.integer(i % 7);
  writer.end_list();
  const std::string bytes = writer.finish();
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), 'e'), 3);
  const PickleDocument document(bytes, "x");
  EXPECT_EQ(document[document.root()].children.size(), 2500U);
}

}  // namespace
}  // namespace plimsoll::explain
