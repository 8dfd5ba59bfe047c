// The number of reasoning tokens, for tokens that end anywhere.
#include "service/tools/reasoning_counter.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace tidepool::service {
namespace {

ResponseFormat Thinking(bool in_reasoning) {
  ResponseFormat format = {.in_reasoning = in_reasoning};
  format.reasoning.set_begin("<think>");
  format.reasoning.set_end("</think>");
  return format;
}

int64_t Count(const ResponseFormat& format, const std::vector<std::string>& tokens) {
  ReasoningCounter counter(format);
  for (const std::string& token : tokens) counter.Add(token);
  return counter.tokens();
}

std::vector<std::string> Bytes(const std::string& text) {
  std::vector<std::string> tokens;
  for (const char c : text) tokens.emplace_back(1, c);
  return tokens;
}

TEST(ReasoningCounterTest, CountsTheTokensBetweenTheMarkers) {
  const ResponseFormat format = Thinking(false);
  EXPECT_EQ(Count(format, {"<think>", "\n", "Hm", ".", "\n", "</think>", "\n\n", "Yes"}), 4);
  EXPECT_EQ(Count(format, Bytes("<think>Hm.</think>Yes")), 3);
  EXPECT_EQ(Count(format, Bytes("<think>a < b</t</think>Yes")), 8);
  EXPECT_EQ(Count(format, {"<thi", "nk>So", " what", "?</th", "ink>", "Yes"}), 3);
  EXPECT_EQ(Count(format, {"<think>", "</think>", "Yes"}), 0);
  EXPECT_EQ(Count(format, {"Yes", "<think>", "no", "</think>"}), 0);
  EXPECT_EQ(Count(format, {"<think>", "a", "</think>", "<think>", "b", "c", "</think>", "d"}), 3);
}

// Control tokens that are not markers have no text.
TEST(ReasoningCounterTest, TokensWithoutTextAreNotCounted) {
  EXPECT_EQ(Count(Thinking(true), {"a", "", "b", "</think>", ""}), 2);
}

TEST(ReasoningCounterTest, ThePromptMayEndInReasoning) {
  const ResponseFormat format = Thinking(true);
  EXPECT_EQ(Count(format, {"So", " what", "</think>", "Yes"}), 2);
  // Some models write the marker again.
  EXPECT_EQ(Count(format, {"<think>", "\n", "So", "</think>", "Yes"}), 2);
  EXPECT_EQ(Count(format, Bytes("<think>So</think>Yes")), 2);
  EXPECT_EQ(Count(format, {"So", " what", "?"}), 3);
}

TEST(ReasoningCounterTest, HarmonyReasonsInSeveralMessages) {
  ResponseFormat format = {.syntax = v1::HARMONY};
  const std::vector<std::string> response = {
      "<|channel|>", "analysis",    "<|message|>", "Hm",          ".",  "<|end|>", "<|start|>",
      "assistant",   "<|channel|>", "analysis",    "<|message|>", "So", "<|end|>", "<|start|>",
      "assistant",   "<|channel|>", "final",       "<|message|>", "Yes"};
  EXPECT_EQ(Count(format, response), 3);
  std::string text;
  for (const std::string& token : response) text += token;
  EXPECT_EQ(Count(format, Bytes(text)), 5);
  format.in_reasoning = true;
  EXPECT_EQ(Count(format, {"Hm", ".", "<|end|>", "<|start|>", "assistant", "<|channel|>", "final",
                           "<|message|>", "Yes"}),
            2);
}

}  // namespace
}  // namespace tidepool::service
