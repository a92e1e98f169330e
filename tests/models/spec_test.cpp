// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/models/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plimsoll/base/error.h"

namespace plimsoll::models {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string refusal(std::string_view text) {
  try {
    parse_model(text);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ModelText, ReadsKeysListsAndDefaults) {
  const Settings settings = parse_model("resnet:stages=6-32-40-6,image=32,channels=16");
  EXPECT_EQ(settings.model(), "resnet");
  EXPECT_THAT(settings.list("stages"), ElementsAre(6, 32, 40, 6));
  EXPECT_EQ(settings.integer("channels"), 16);
  EXPECT_EQ(settings.integer("classes"), 10);
  EXPECT_EQ(settings.choice("stem"), "auto");
  EXPECT_TRUE(settings.is_given("image"));
  EXPECT_FALSE(settings.is_given("classes"));
}

TEST(ModelText, EqualModelsHaveOneCanonicalForm) {
  EXPECT_EQ(parse_model("resnet:image=32,stages=1-2").canonical(),
            parse_model("resnet:stages=1-2,image=32").canonical());
  EXPECT_EQ(parse_model("vgg16").canonical(), "vgg16");
}

TEST(ModelText, AnUnknownModelNamesTheNearest) {
  EXPECT_THAT(refusal("resnet51"), AllOf(HasSubstr("resnet51"), HasSubstr("'resnet50'")));
  EXPECT_THAT(refusal("mobilnet-v2"), HasSubstr("'mobilenet-v2'"));
  EXPECT_THAT(refusal(""), HasSubstr("unknown"));
}

TEST(ModelText, AnUnknownKeyNamesTheNearest) {
  EXPECT_THAT(refusal("resnet:stage=3-4"), AllOf(HasSubstr("'stage'"), HasSubstr("'stages'")));
  EXPECT_THAT(refusal("gpt:image=32"), HasSubstr("'image' is unknown"));
}

TEST(ModelText, AWrongValueNamesKeyValueAndRange) {
  EXPECT_THAT(refusal("resnet50:image=3"),
              AllOf(HasSubstr("image"), HasSubstr("'3'"), HasSubstr("8 to 4096")));
  EXPECT_THAT(refusal("resnet50:dropout=1"), AllOf(HasSubstr("dropout"), HasSubstr("0 to 0.99")));
  EXPECT_THAT(refusal("resnet50:dropout=nan"), HasSubstr("dropout"));
  EXPECT_THAT(refusal("resnet:stages=3--4"), AllOf(HasSubstr("stages"), HasSubstr("dashes")));
  EXPECT_THAT(refusal("resnet:stages=3-4-"), HasSubstr("stages"));
  EXPECT_THAT(refusal("randwire:generator=xx"), HasSubstr("ws, er, ba"));
  EXPECT_THAT(refusal("resnet50:image=99999999999999999999"), HasSubstr("image"));
  EXPECT_THAT(refusal("resnet50:image=32.5"), HasSubstr("whole number"));
}

TEST(ModelText, WhatIsNoPairIsRefused) {
  EXPECT_THAT(refusal("resnet50:"), HasSubstr("key=value"));
  EXPECT_THAT(refusal("resnet50:image"), HasSubstr("resnet50:image=VALUE"));
  EXPECT_THAT(refusal("resnet50:image=32,"), HasSubstr("key=value"));
  EXPECT_THAT(refusal("resnet50:image=32,image=64"), HasSubstr("twice"));
}

TEST(ModelList, EveryDefaultAndEverySmallTextParses) {
  for (const ModelInfo& info : model_list()) {
    EXPECT_EQ(refusal(info.name), "accepted");
    EXPECT_EQ(refusal(info.small), "accepted");
    EXPECT_EQ(parse_model(info.small).model(), info.name);
    EXPECT_NE(info.find_key("seed"), nullptr) << info.name;
    EXPECT_NE(info.find_key("classes"), nullptr) << info.name;
    EXPECT_NE(info.find_key("dropout"), nullptr) << info.name;
  }
}

}  // namespace
}  // namespace plimsoll::models
