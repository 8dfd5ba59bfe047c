#include "service/worker/output_rules.h"

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "engine/grammar/grammar_cache.h"
#include "engine/grammar/matcher.h"
#include "gtest/gtest.h"
#include "service/grpc/convert.h"
#include "tests/fakes/byte_tokenizer.h"

namespace tidepool::service {
namespace {

using engine::GenerationRequest;

constexpr char kTools[] =
    R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
        "properties": {"x": {"type": "boolean"}}, "required": ["x"],
        "additionalProperties": false}}}])";
constexpr char kCall[] =
    "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": true}}\n</tool_call>";
constexpr char kWrongCall[] =
    "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>";

class OutputRulesTest : public testing::Test {
 protected:
  OutputRulesTest() : tokenizer_(fakes::MakeByteTokenizer()) {
    model_.name = "m";
    model_.tokenizer = tokenizer_.get();
    model_.grammars = std::make_shared<engine::grammar::GrammarCache>(tokenizer_.get());
    model_.tool_syntax = v1::TOOL_CALL_TAGS;
    model_.reasoning.set_begin("<t>");
    model_.reasoning.set_end("</t>");
    request_.mutable_chat();
  }

  // Returns the error, and sets generation_.
  absl::Status Constrain(absl::string_view prompt) {
    worker::v1::Start start;
    CopyConstraint(request_, &start);
    generation_ = GenerationRequest();
    generation_.token_ids = fakes::ByteTokens(prompt);
    generation_.prompt_length = static_cast<int64_t>(prompt.size());
    start.mutable_prepared()->set_in_reasoning(in_reasoning_);
    const absl::Status status = ConstrainOutput(model_, start, &generation_);
    EXPECT_EQ(status, CheckOutputRules(model_, request_, generation_.token_ids, in_reasoning_));
    const bool constrained =
        !status.ok() || generation_.grammar != nullptr || generation_.reasoning_limit.has_value();
    EXPECT_TRUE(WorkFor(model_, start) != OutputWork::kNone || !constrained);
    return status;
  }
  bool Accepts(absl::string_view prompt, absl::string_view text) {
    EXPECT_TRUE(Constrain(prompt).ok());
    if (generation_.grammar == nullptr) return true;
    engine::grammar::Matcher matcher(generation_.grammar, generation_.token_trie);
    while (!text.empty()) {
      // The only marker in these tests that is a control token of the vocabulary.
      const bool is_start = absl::ConsumePrefix(&text, "<|start|>");
      const int32_t token = is_start ? fakes::kStartToken : static_cast<uint8_t>(text[0]);
      if (!matcher.AcceptToken(token)) return false;
      if (!is_start) text.remove_prefix(1);
    }
    return matcher.accepts();
  }
  void Require() {
    request_.mutable_chat()->mutable_tool_choice()->set_mode(v1::ToolChoice::REQUIRED);
  }

  std::unique_ptr<engine::Tokenizer> tokenizer_;
  WorkerModel model_;
  v1::GenerateRequest request_;
  bool in_reasoning_ = false;
  GenerationRequest generation_;
};

TEST_F(OutputRulesTest, AConstraintBeginsAfterTheReasoning) {
  request_.set_json_schema(R"({"type": "object"})");
  EXPECT_TRUE(Accepts("assistant: <t>\n", "hm</t>\n\n{}"));
  EXPECT_FALSE(Accepts("assistant: <t>\n", "{}"));
  EXPECT_TRUE(Accepts("assistant: ", "<t>hm</t>{}"));
  EXPECT_TRUE(Accepts("assistant: ", "{}"));
  EXPECT_FALSE(Accepts("assistant: ", "hm</t>{}"));
  EXPECT_TRUE(Accepts("assistant: <t>\n\n</t>\n\n", "{}"));
  EXPECT_FALSE(Accepts("assistant: <t>\n\n</t>\n\n", "<t></t>{}"));
  // A marker elsewhere in the prompt has no effect.
  EXPECT_TRUE(Accepts("user: <t>\nassistant: ", "{}"));
  request_.mutable_chat()->set_continue_final_message(true);
  EXPECT_FALSE(Accepts("assistant: ", "<t></t>{}"));
}

TEST_F(OutputRulesTest, ATextHasNoReasoning) {
  request_.set_text("x");
  request_.set_regex("a+");
  EXPECT_TRUE(Accepts("<t>", "aa"));
  EXPECT_FALSE(Accepts("<t>", "</t>aa"));
}

TEST_F(OutputRulesTest, ARequiredCallReplacesTheConstraint) {
  request_.set_json_schema(R"({"type": "object"})");
  request_.mutable_chat()->set_tools_json(kTools);
  EXPECT_TRUE(Accepts(">", kCall));
  EXPECT_TRUE(Accepts(">", kWrongCall));  // the tool is not strict
  EXPECT_TRUE(Accepts(">", "{}"));
  EXPECT_FALSE(Accepts(">", "hello"));
  Require();
  EXPECT_TRUE(Accepts(">", kCall));
  EXPECT_TRUE(Accepts(">", std::string("<t>hm</t>\n\n") + kCall));
  EXPECT_FALSE(Accepts(">", kWrongCall));
  EXPECT_FALSE(Accepts(">", "{}"));
  // Without tools in the prompt there are no calls.
  request_.mutable_chat()->mutable_tool_choice()->set_mode(v1::ToolChoice::NONE);
  EXPECT_TRUE(Accepts(">", "{}"));
  EXPECT_FALSE(Accepts(">", kCall));
}

TEST_F(OutputRulesTest, ToolsAloneRestrictNothing) {
  request_.mutable_chat()->set_tools_json(kTools);
  ASSERT_TRUE(Constrain(">").ok());
  EXPECT_EQ(generation_.grammar, nullptr);
  request_.mutable_chat()->set_parallel_tool_calls(false);
  EXPECT_TRUE(Accepts(">", std::string("ok ") + kCall));
  EXPECT_FALSE(Accepts(">", std::string("ok ") + kWrongCall));
  EXPECT_TRUE(Accepts("<t>", "only reasoning"));
}

TEST_F(OutputRulesTest, TheReasoningHasALimit) {
  request_.set_thinking_budget_tokens(5);
  ASSERT_TRUE(Constrain("<t>\n").ok());
  ASSERT_TRUE(generation_.reasoning_limit.has_value());
  EXPECT_TRUE(generation_.reasoning_limit->open);
  EXPECT_EQ(generation_.reasoning_limit->max_tokens, 5);
  EXPECT_EQ(generation_.reasoning_limit->end_tokens, fakes::ByteTokens("</t>"));
  EXPECT_EQ(generation_.grammar, nullptr);
  EXPECT_NE(generation_.token_trie, nullptr);
  ASSERT_TRUE(Constrain(">").ok());
  EXPECT_FALSE(generation_.reasoning_limit->open);
  ASSERT_TRUE(Constrain("<t></t>").ok());
  EXPECT_FALSE(generation_.reasoning_limit.has_value());
}

TEST_F(OutputRulesTest, HarmonyHasMessages) {
  model_.tool_syntax = v1::HARMONY;
  model_.reasoning.set_begin("<|channel|>analysis<|message|>");
  model_.reasoning.set_end("<|end|>");
  const std::string prompt = "<|start|>assistant";
  const std::string analysis = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant";
  const std::string final_message = "<|channel|>final<|message|>";
  const std::string call =
      "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"x\": true}<|call|>";
  request_.set_json_schema(R"({"type": "object"})");
  EXPECT_TRUE(Accepts(prompt, analysis + final_message + "{}"));
  EXPECT_TRUE(Accepts(prompt, final_message + "{}"));
  EXPECT_FALSE(Accepts(prompt, "{}"));
  EXPECT_FALSE(Accepts(prompt, analysis + "{}"));
  request_.mutable_chat()->set_tools_json(kTools);
  Require();
  EXPECT_TRUE(Accepts(prompt, analysis + call));
  EXPECT_TRUE(Accepts(prompt, call));
  EXPECT_FALSE(Accepts(prompt, analysis + final_message + "{}"));
}

TEST_F(OutputRulesTest, Refusals) {
  const auto refused = [this](const char* words) {
    const absl::Status status = Constrain(">");
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(absl::StrContains(status.message(), words)) << status;
  };
  request_.mutable_chat()->set_tools_json(kTools);
  Require();
  model_.tool_syntax = v1::OTHER_TOOL_SYNTAX;
  refused("is not known");
  model_.tool_syntax = v1::TOOL_CALL_TAGS;
  request_.mutable_chat()->set_tools_json(R"json([{"type": "function", "function": {"name": "f",
      "parameters": {"type": "object", "properties": {"a": {"pattern": "(?<=a)"}}}}}])json");
  refused("tools[0].function.parameters: JSON schema, at \"/properties/a\"");
  request_.clear_chat();
  request_.mutable_chat();
  request_.set_thinking_budget_tokens(5);
  model_.reasoning.Clear();
  refused("thinking_budget_tokens");
}

TEST_F(OutputRulesTest, EqualRulesShareAGrammar) {
  request_.mutable_chat()->set_tools_json(kTools);
  Require();
  ASSERT_TRUE(Constrain("a").ok());
  const auto first = generation_.grammar;
  ASSERT_TRUE(Constrain("b").ok());
  EXPECT_EQ(generation_.grammar, first);
  ASSERT_TRUE(Constrain("<t>").ok());
  EXPECT_NE(generation_.grammar, first);
}

// The prompt ends inside of the reasoning of a message that the response continues.
TEST_F(OutputRulesTest, AGrammarIsCompiledOnceForTheCheckAndTheRun) {
  request_.set_json_schema(R"({"type": "object"})");
  request_.mutable_chat()->set_continue_final_message(true);
  in_reasoning_ = true;
  EXPECT_TRUE(Accepts("assistant: <t>\nhm", " ok</t>{}"));
  EXPECT_EQ(model_.grammars->compiled_total(), 1);
  EXPECT_TRUE(Accepts("assistant: <t>\nhm", " ok</t>{}"));
  EXPECT_EQ(model_.grammars->compiled_total(), 1);
}

TEST_F(OutputRulesTest, PlainToolsMayNotConstrain) {
  const auto may = [this] {
    worker::v1::Start start;
    CopyConstraint(request_, &start);
    return WorkFor(model_, start) != OutputWork::kNone;
  };
  EXPECT_FALSE(may());
  request_.mutable_chat()->set_tools_json(kTools);
  EXPECT_FALSE(may());
  for (const char* tools :
       {R"([{"name": "f", "strict": true}])", R"([{"name": "f", "stri\u0063t": true}])"}) {
    request_.mutable_chat()->set_tools_json(tools);
    EXPECT_TRUE(may());
    ASSERT_TRUE(Constrain(">").ok());
    EXPECT_NE(generation_.grammar, nullptr);
  }
}

TEST_F(OutputRulesTest, OnlyUnknownGrammarsAreLongWork) {
  const auto work = [this] {
    worker::v1::Start start;
    CopyConstraint(request_, &start);
    return WorkFor(model_, start);
  };
  request_.set_thinking_budget_tokens(3);
  EXPECT_EQ(work(), OutputWork::kShort);
  request_.set_json_schema(R"({"type": "object"})");
  EXPECT_EQ(work(), OutputWork::kLong);
  ASSERT_TRUE(Constrain("<t>").ok());
  EXPECT_EQ(work(), OutputWork::kShort);
  request_.set_thinking_budget_tokens(4);
  EXPECT_EQ(work(), OutputWork::kShort);
  request_.set_json_schema(R"({"type": "array"})");
  EXPECT_EQ(work(), OutputWork::kLong);
}

}  // namespace
}  // namespace tidepool::service
