// What chat templates tell about tool calls and reasoning, and the descriptions of the formats.
#include "service/tools/tool_syntax.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "kernels/base/check.h"
#include "service/tools/call_id.h"
#include "service/tools/tool_format.h"

namespace tidepool::service {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  CHECK(file.good()) << "cannot read " << path;
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

struct Known {
  const char* path;
  v1::ToolSyntax syntax;
  const char* reasoning;  // the marker with which it begins
};

TEST(ToolSyntaxTest, Templates) {
  const Known known[] = {
      {"engine/tokenizer/golden/published/Qwen-Qwen3-0.6B.jinja", v1::TOOL_CALL_TAGS, "<think>"},
      {"engine/tokenizer/golden/published/Qwen-Qwen2.5-7B-Instruct.jinja", v1::TOOL_CALL_TAGS, ""},
      {"engine/tokenizer/golden/published/Qwen-QwQ-32B.jinja", v1::TOOL_CALL_TAGS, "<think>"},
      {"engine/tokenizer/golden/published/Qwen3-Coder.jinja", v1::QWEN_XML, ""},
      {"engine/tokenizer/golden/published/HuggingFaceTB-SmolLM3-3B.jinja", v1::GENERIC_TOOLS,
       "<think>"},
      {"engine/tokenizer/golden/published/ByteDance-Seed-OSS.jinja", v1::SEED_XML, "<seed:think>"},
      {"engine/tokenizer/golden/published/openai-gpt-oss-120b.jinja", v1::HARMONY,
       "<|channel|>analysis<|message|>"},
      {"engine/tokenizer/golden/published/ibm-granite-granite-3.3-2B-Instruct.jinja", v1::GRANITE,
       "<think>"},
      {"engine/tokenizer/golden/published/ibm-granite-granite-4.0.jinja", v1::TOOL_CALL_TAGS, ""},
      {"engine/tokenizer/golden/published/mistralai-Mistral-Nemo-Instruct-2407.jinja",
       v1::MISTRAL_LIST, ""},
      {"engine/tokenizer/golden/templates/command_r.jinja", v1::COMMAND_R, ""},
      {"engine/tokenizer/golden/templates/deepseek_r1.jinja", v1::DEEPSEEK_V3, "<think>"},
      {"engine/tokenizer/golden/templates/glm45.jinja", v1::GLM_XML, "<think>"},
      {"engine/tokenizer/golden/templates/granite3.jinja", v1::GRANITE, ""},
      {"engine/tokenizer/golden/templates/hermes_tools.jinja", v1::TOOL_CALL_TAGS, ""},
      {"engine/tokenizer/golden/templates/llama31.jinja", v1::LLAMA3_JSON, ""},
      {"engine/tokenizer/golden/templates/nemo_tools.jinja", v1::MISTRAL_LIST, ""},
      {"engine/tokenizer/golden/templates/chatml.jinja", v1::GENERIC_TOOLS, ""},
      {"engine/tokenizer/golden/templates/gemma3.jinja", v1::GENERIC_TOOLS, ""},
      {"service/tools/templates/deepseek_dsml.jinja", v1::DEEPSEEK_DSML, "<think>"},
      {"service/tools/templates/deepseek_v31.jinja", v1::DEEPSEEK_V31, "<think>"},
      {"service/tools/templates/llama_pythonic.jinja", v1::LLAMA_PYTHONIC, ""},
      {"service/tools/templates/mistral_args.jinja", v1::MISTRAL_ARGS, "[THINK]"},
  };
  for (const Known& item : known) {
    const std::string source = ReadFile(std::string("tests/") + item.path);
    EXPECT_EQ(ToolSyntaxOf(source), item.syntax) << item.path;
    EXPECT_EQ(ReasoningMarkersOf(source).begin(), item.reasoning) << item.path;
  }
  EXPECT_EQ(ToolSyntaxOf(""), v1::TOOL_SYNTAX_UNSPECIFIED);
}

TEST(ToolSyntaxTest, PromptsThatEndInReasoning) {
  v1::ReasoningMarkers markers;
  EXPECT_FALSE(EndsInReasoning("<think>\n", markers));
  EXPECT_FALSE(ContinuesReasoning("<think>\n", markers));
  markers.set_begin("<think>");
  markers.set_end("</think>");
  EXPECT_TRUE(EndsInReasoning("<|im_start|>assistant\n<think>\n", markers));
  EXPECT_FALSE(EndsInReasoning("<|im_start|>assistant\n<think>\n\n</think>\n\n", markers));
  EXPECT_FALSE(EndsInReasoning("Say <think> twice", markers));
  EXPECT_TRUE(ContinuesReasoning("<think>a</think><think>\nb", markers));
  EXPECT_FALSE(ContinuesReasoning("<think>\na</think>b", markers));
}

// Each marker that begins a call is among the markers, so a control token of its name is shown.
TEST(ToolFormatTest, MarkersOfFormats) {
  for (const ToolFormat* format : AllToolFormats()) {
    EXPECT_EQ(FormatOf(format->syntax), format);
    const std::vector<std::string> markers = MarkersOf(format->syntax, {});
    const auto has = [&markers](absl::string_view text) {
      return std::find(markers.begin(), markers.end(), text) != markers.end();
    };
    if (format->syntax != v1::HARMONY && !format->trigger.empty()) {
      EXPECT_TRUE(has(format->trigger)) << format->trigger;
    }
    EXPECT_FALSE(has(""));
  }
  const std::vector<std::string> harmony = MarkersOf(v1::HARMONY, {});
  for (const char* marker :
       {"<|channel|>", "<|message|>", "<|constrain|>", "<|start|>", "<|end|>"}) {
    EXPECT_NE(std::find(harmony.begin(), harmony.end(), marker), harmony.end()) << marker;
  }
  EXPECT_EQ(FormatOf(v1::OTHER_TOOL_SYNTAX), nullptr);
}

TEST(CallIdTest, DependsOnTheNamesOnly) {
  const std::string id = CallId("alice", "r1", 0);
  EXPECT_EQ(id, CallId("alice", "r1", 0));
  EXPECT_EQ(id.substr(0, 5), "call_");
  EXPECT_EQ(id.size(), 29);
  for (const std::string& other : {CallId("alice", "r1", 1), CallId("alice", "r10", 0),
                                   CallId("alicer", "1", 0), CallId("", "alicer1", 0)}) {
    EXPECT_NE(other, id);
  }
}

TEST(CallIdTest, ShortIdsHaveNineLettersAndDigits) {
  EXPECT_EQ(ShortCallId("abcDEF123"), "abcDEF123");
  for (const char* id : {"call_1", "", "abcDEF12-", "abcdefghij"}) {
    const std::string text = ShortCallId(id);
    EXPECT_EQ(text, ShortCallId(id));
    EXPECT_EQ(text.size(), 9);
    EXPECT_EQ(ShortCallId(text), text);
  }
}

}  // namespace
}  // namespace tidepool::service
