// SPDX-License-Identifier: Apache-2.0
// Random changes to valid files: every reader gives a graph that its own invariants hold for, or
// InvalidFile; nothing else, and never much memory or time.
#include <functional>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "plimsoll/base/error.h"
#include "plimsoll/graph/json.h"
#include "plimsoll/graph/memory.h"
#include "plimsoll/graph/onnx.h"
#include "plimsoll/graph/text.h"

#include "random_graph.h"

namespace plimsoll::graph {
namespace {

using Reader = std::function<Graph(const std::string&)>;

std::string mutate(std::string text, std::mt19937& random) {
  static const std::string kPieces[] = {"9223372036854775807",
                                        "-1",
                                        "1e308",
                                        "0",
                                        "[",
                                        "]",
                                        "{",
                                        "\"",
                                        "\n",
                                        " ",
                                        std::string(1, '\0'),
                                        "\xff\xff\xff\xff",
                                        "18446744073709551616",
                                        "null",
                                        ","};
  for (int i = 1 + static_cast<int>(random() % 4); i > 0 && !text.empty(); --i) {
    const std::size_t at = random() % text.size();
    const std::string& piece = kPieces[random() % std::size(kPieces)];
    switch (random() % 6) {
      case 0:
        text[at] = static_cast<char>(random());
        break;
      case 1:
        text.erase(at, 1 + random() % 20);
        break;
      case 2:
        text.insert(at, piece);
        break;
      case 3:
        text.replace(at, 1 + random() % 4, piece);
        break;
      case 4:
        text.insert(at, text.substr(random() % text.size(), random() % 40));
        break;
      default:
        text.resize(at);
    }
  }
  return text;
}

// Reads many mutations of `text`; returns how many were still graphs.
int fuzz(const std::string& text, int rounds, const Reader& read) {
  int accepted = 0;
  for (int seed = 0; seed < rounds; ++seed) {
    std::mt19937 random(static_cast<std::uint32_t>(seed));
    const std::string changed = mutate(text, random);
    try {
      const Graph graph = read(changed);
      ++accepted;
      const MemoryProfile profile = memory_profile(graph, graph.program_order());
      EXPECT_GE(profile.peak_bytes, profile.start_bytes);
    } catch (const InvalidFile& error) {
      EXPECT_NE(std::string(error.what()).find("f.x"), std::string::npos) << "seed " << seed;
    } catch (const std::exception& error) {
      ADD_FAILURE() << "seed " << seed << ": " << error.what();
    }
  }
  return accepted;
}

TEST(Fuzz, TextReader) {
  const std::string text =
      "4 3\n8 1 0\n8 0 0\n16 0 0\n8 0 1\n1 1 1 0 1 relu\n0 2 1 0 1 2 concat\n0 1 1 2 3 conv\n";
  const int accepted = fuzz(text, 20000, [](const std::string& t) { return read_text(t, "f.x"); });
  EXPECT_GT(accepted, 0);
}

TEST(Fuzz, JsonReader) {
  const std::string text = write_json(testing::random_graph(11, {.ops = 8}));
  const int accepted = fuzz(text, 20000, [](const std::string& t) { return read_json(t, "f.x"); });
  EXPECT_GT(accepted, 0);
}

TEST(Fuzz, OnnxReader) {
  std::mt19937 random(1);
  // The front of a real model, where all kinds of messages stand close together, and all of it.
  std::FILE* file = std::fopen(PLIMSOLL_TEST_DATA "/graphs/inference/randwire1-wsum-32.onnx", "rb");
  ASSERT_NE(file, nullptr);
  std::string text(1 << 16, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  const int accepted = fuzz(text, 2000, [](const std::string& t) { return read_onnx(t, "f.x"); });
  EXPECT_GT(accepted, 0);
}

}  // namespace
}  // namespace plimsoll::graph
