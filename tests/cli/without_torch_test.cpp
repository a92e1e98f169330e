// SPDX-License-Identifier: Apache-2.0
// The commands of a build without LibTorch: bindings/cli/src/commands_without_torch.cpp stands
// among this program's sources.
#include <gmock/gmock.h>

#include "command_run.h"

namespace plimsoll::cli::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

TEST(WithoutLibTorch, TrainAndModelsSayWhatIsMissingInOneLine) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"train"},
        {"train", "mlp", "--budget", "33%", "--against-stock"},
        {"models"},
        {"models", "resnet50", "--json", "/dev/null"}}) {
    const CommandRun result = run(words, add_torch_commands);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err,
                MatchesRegex("plimsoll (train|models): this program was built without LibTorch; "
                             "[^\n]*\\./dev build[^\n]*-DPLIMSOLL_TORCH_DIR=[^\n]*\n"));
    EXPECT_EQ(result.out, "");
  }
}

TEST(WithoutLibTorch, TheRefusalIsInTheJson) {
  const CommandRun result = run({"train", "mlp", "--json", "-"}, add_torch_commands);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.json()["error"]["code"], "unsupported");
}

TEST(WithoutLibTorch, TheHelpListsThemAndSaysSo) {
  const CommandRun result = run({"--help"}, add_torch_commands);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("train"), HasSubstr("models"), HasSubstr("doctor"),
                                HasSubstr("not in this build: no LibTorch")));
}

TEST(WithoutLibTorch, DoctorSaysWhatItCan) {
  const CommandRun result = run({"doctor", "--json", "-"}, add_torch_commands);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const Json json = result.json();
  EXPECT_EQ(json["libtorch"], "none");
  EXPECT_TRUE(json["self_test"].is_null());
  EXPECT_THAT(json["problems"].get<std::vector<std::string>>(),
              Contains(HasSubstr("built without LibTorch")));
  for (const char* key : {"cuda_toolkit", "driver", "devices", "cudnn", "io_uring", "data"})
    EXPECT_TRUE(json.contains(key)) << key;
  EXPECT_EQ(built_with_libtorch(), "none");
}

}  // namespace
}  // namespace plimsoll::cli::testing
