#include "service/worker/prompt.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "service/grpc/check_request.h"
#include "tests/fakes/byte_tokenizer.h"
#include "tests/service/test_server.h"

namespace tidepool::service {
namespace {

using absl::StatusCode;
using Ids = std::vector<int32_t>;

class PromptTest : public testing::Test {
 protected:
  absl::StatusOr<worker::v1::PrepareResponse> Prepare() {
    return service::Prepare(request_, {.model = &engine_.worker, .drawn_seed = 77});
  }
  Ids Prompt() {
    const auto prepared = Prepare();
    EXPECT_TRUE(prepared.ok()) << prepared.status();
    if (!prepared.ok()) return {};
    kept_ = prepared->session_tokens_kept();
    return {prepared->token_ids().begin(), prepared->token_ids().end()};
  }
  static void Add(google::protobuf::RepeatedPtrField<v1::ChatMessage>* messages,
                  const std::string& role, const std::string& content) {
    v1::ChatMessage* message = messages->Add();
    message->set_role(role);
    message->set_content(content);
  }
  void Ask(const std::string& content) {
    Add(request_.mutable_request()->mutable_chat()->mutable_messages(), "user", content);
  }
  // Sets the log to the prompt of "hi", followed by this response.
  void Answered(const std::string& content, const Ids& made) {
    auto* session = request_.mutable_session();
    Add(session->mutable_messages(), "user", "hi");
    Add(session->mutable_messages(), "assistant", content);
    Ids log = FirstPrompt();
    log.insert(log.end(), made.begin(), made.end());
    session->mutable_token_ids()->Assign(log.begin(), log.end());
    log_ = log;
  }
  static Ids Join(std::vector<Ids> parts) {
    Ids all;
    for (const Ids& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  }
  static Ids Bytes(const std::string& text) { return fakes::ByteTokens(text); }
  static Ids FirstPrompt() {
    return Join({{fakes::kStartToken},
                 Bytes("user\nhi"),
                 {fakes::kEndToken, fakes::kStartToken},
                 Bytes("assistant\n")});
  }
  static Ids NextTurn(const std::string& content) {
    return Join({{fakes::kStartToken},
                 Bytes("user\n" + content),
                 {fakes::kEndToken, fakes::kStartToken},
                 Bytes("assistant\n")});
  }

  TestEngine engine_{TestEngineOptions{.context = 256}};
  worker::v1::PrepareRequest request_;
  Ids log_;
  int64_t kept_ = -1;
};

TEST_F(PromptTest, TextReadsSpecialTokens) {
  request_.mutable_request()->set_text("ab<|start|>");
  EXPECT_EQ(Prompt(), (Ids{'a', 'b', fakes::kStartToken}));
}

TEST_F(PromptTest, ChatContentsHoldNone) {
  Ask("x<|end_of_text|>");
  EXPECT_EQ(Prompt(), Join({{fakes::kStartToken},
                            Bytes("user\nx<|end_of_text|>"),
                            {fakes::kEndToken, fakes::kStartToken},
                            Bytes("assistant\n")}));
}

TEST_F(PromptTest, TemplatesReadTheReasoningOfAnAssistant) {
  engine_.worker.chat_template = engine::ChatTemplate::Parse(
      "{%- for message in messages -%}"
      "{%- if message.reasoning_content is defined -%}{{- '(' + message.reasoning_content + ')' -}}"
      "{%- endif -%}{{- message.content -}}{%- endfor -%}");
  Ask("why");
  auto* messages = request_.mutable_request()->mutable_chat()->mutable_messages();
  Add(messages, "assistant", "so");
  EXPECT_EQ(Prompt(), Bytes("whyso"));
  messages->at(1).set_reasoning_content("hm");
  EXPECT_EQ(Prompt(), Bytes("why(hm)so"));
}

TEST_F(PromptTest, SaysWhetherTheResponseBeginsWithReasoning) {
  engine_.worker.chat_template =
      engine::ChatTemplate::Parse("{{ messages[-1].content }}{% if think %}<think>\n{% endif %}");
  engine_.worker.reasoning.set_begin("<think>");
  engine_.worker.reasoning.set_end("</think>");
  Ask("Say <think> twice");
  EXPECT_FALSE(Prepare()->in_reasoning());
  request_.mutable_request()->mutable_chat()->set_template_kwargs_json("{\"think\": true}");
  EXPECT_TRUE(Prepare()->in_reasoning());
  EXPECT_TRUE(Prepare()->marker_token_ids().empty());
}

// The front must see the markers of reasoning and of calls, also if they are control tokens.
TEST_F(PromptTest, NamesTheControlTokensThatAreMarkers) {
  engine_.worker.reasoning.set_begin("<|start|>");
  engine_.worker.reasoning.set_end("</think>");
  Ask("hi");
  EXPECT_TRUE(Prepare()->marker_token_ids().empty());
  request_.mutable_request()->set_parse_output(true);
  const auto prepared = Prepare();
  EXPECT_EQ(Ids(prepared->marker_token_ids().begin(), prepared->marker_token_ids().end()),
            (Ids{fakes::kStartToken}));
}

TEST_F(PromptTest, ToolsAreDescribedIfTheTemplateDoesNotSupportThem) {
  engine_.worker.tool_syntax = v1::GENERIC_TOOLS;
  engine_.worker.context_length = 2048;
  v1::GenerateRequest* request = request_.mutable_request();
  request->set_echo(true);
  Ask("hi");
  EXPECT_EQ(Prepare()->prompt_text(), "<|start|>user\nhi<|end_of_text|><|start|>assistant\n");
  request->mutable_chat()->set_tools_json(R"([{"function":{"name":"f"}}])");
  v1::ChatMessage* call = request->mutable_chat()->add_messages();
  call->set_role("assistant");
  call->set_tool_calls_json(R"([{"function":{"name":"f","arguments":{"a":1}}}])");
  Add(request->mutable_chat()->mutable_messages(), "tool", "5");
  const std::string text = Prepare()->prompt_text();
  EXPECT_TRUE(absl::StartsWith(text, "<|start|>system\nYou can call tools.")) << text;
  for (const char* part :
       {"\n{\"function\":{\"name\":\"f\"}}\n</tools>", "<|start|>user\nhi<|end_of_text|>",
        "<|start|>assistant\n<tool_call>\n{\"name\": \"f\", \"arguments\": "
        "{\"a\":1}}\n</tool_call>",
        "<|start|>user\n<tool_response>\n5\n</tool_response><|end_of_text|>"}) {
    EXPECT_TRUE(absl::StrContains(text, part)) << part << " in " << text;
  }
}

// Templates of some models reject a system message.
TEST_F(PromptTest, ToolsAreDescribedToTheUserIfThereIsNoSystemMessage) {
  engine_.worker.tool_syntax = v1::GENERIC_TOOLS;
  engine_.worker.context_length = 2048;
  engine_.worker.chat_template = engine::ChatTemplate::Parse(
      "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
      "{{ messages[0].content }}");
  request_.mutable_request()->set_echo(true);
  Ask("hi");
  request_.mutable_request()->mutable_chat()->set_tools_json(R"([{"function":{"name":"f"}}])");
  const std::string text = Prepare()->prompt_text();
  EXPECT_TRUE(absl::StartsWith(text, "You can call tools.")) << text;
  EXPECT_TRUE(absl::EndsWith(text, "\n\nhi")) << text;
}

TEST_F(PromptTest, MistralGetsIdsOfNineCharacters) {
  engine_.worker.tool_syntax = v1::MISTRAL_LIST;
  engine_.worker.chat_template = engine::ChatTemplate::Parse(
      "{% for m in messages %}{{ m.tool_call_id or m.tool_calls[0].id }};{% endfor %}");
  request_.mutable_request()->set_echo(true);
  auto* messages = request_.mutable_request()->mutable_chat()->mutable_messages();
  Add(messages, "assistant", "");
  messages->rbegin()->set_tool_calls_json(R"([{"id":"call_5","function":{"name":"f"}}])");
  Add(messages, "tool", "5");
  messages->rbegin()->set_tool_call_id("call_5");
  const std::string text = Prepare()->prompt_text();
  ASSERT_EQ(text.size(), 20) << text;
  EXPECT_EQ(text.substr(0, 10), text.substr(10));
}

TEST_F(PromptTest, DevelopersSpeakAsTheSystem) {
  auto* messages = request_.mutable_request()->mutable_chat()->mutable_messages();
  Add(messages, "developer", "be brief");
  const Ids prompt = Prompt();
  messages->at(0).set_role("system");
  EXPECT_EQ(Prompt(), prompt);
  messages->at(0).set_role("sys");
  EXPECT_EQ(Prepare().status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(Prepare().status().message(),
                                "'sys'; accepted: system, developer, user, assistant, tool"))
      << Prepare().status();
}

TEST_F(PromptTest, AResponseCanContinueTheLastMessage) {
  auto* chat = request_.mutable_request()->mutable_chat();
  Ask("hi");
  Add(chat->mutable_messages(), "assistant", "I am a");
  chat->set_continue_final_message(true);
  const Ids user = Join({{fakes::kStartToken}, Bytes("user\nhi"), {fakes::kEndToken}});
  EXPECT_EQ(Prompt(), Join({user, {fakes::kStartToken}, Bytes("assistant\nI am a")}));
  chat->set_add_generation_prompt(true);
  EXPECT_EQ(Prepare().status().code(), StatusCode::kInvalidArgument);
  chat->set_add_generation_prompt(false);
  EXPECT_EQ(Prompt().size(), user.size() + 1 + 16);
  chat->set_continue_final_message(false);
  EXPECT_EQ(Prompt(),
            Join({user, {fakes::kStartToken}, Bytes("assistant\nI am a"), {fakes::kEndToken}}));
  request_.mutable_request()->set_session_id("s");
  EXPECT_EQ(Prepare().status().code(), StatusCode::kInvalidArgument);
}

TEST_F(PromptTest, BiasesByTextAreThoseOfItsTokens) {
  v1::GenerateRequest* request = request_.mutable_request();
  request->set_text("abc");
  auto* biases = request->mutable_sampling()->mutable_logit_bias_text();
  (*biases)["xy"] = 60;
  (*biases)["yz"] = 50;
  (*request->mutable_sampling()->mutable_logit_bias())['z'] = -70;
  const auto prepared = Prepare();
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  const auto& resolved = prepared->sampling().logit_bias();
  EXPECT_EQ(resolved.size(), 3);
  EXPECT_EQ(resolved.at('x'), 60.0f);
  EXPECT_EQ(resolved.at('y'), 100.0f);
  EXPECT_EQ(resolved.at('z'), -20.0f);
  EXPECT_EQ(prepared->sampling().logit_bias_text_size(), 0);
}

TEST_F(PromptTest, EchoIsTheTextThatTheSenderHas) {
  v1::GenerateRequest* request = request_.mutable_request();
  request->set_text("ab<|start|>");
  EXPECT_EQ(Prepare()->prompt_text(), "");
  request->set_echo(true);
  EXPECT_EQ(Prepare()->prompt_text(), "ab<|start|>");
  request->mutable_token_ids()->add_ids('q');
  request->mutable_token_ids()->add_ids(fakes::kEndToken);
  EXPECT_EQ(Prepare()->prompt_text(), "q<|end_of_text|>");
  EXPECT_EQ(Prepare()->understands(), kUnderstands);
  request->mutable_stopping()->set_max_tokens(0);
  EXPECT_EQ(Prepare()->stopping().max_tokens(), 0);
  request->clear_echo();
  EXPECT_EQ(Prepare().status().code(), StatusCode::kInvalidArgument);
}

TEST_F(PromptTest, ParametersAreResolved) {
  request_.mutable_request()->set_text("abc");
  engine_.worker.default_sampling.temperature = 0.5f;
  auto prepared = Prepare();
  ASSERT_TRUE(prepared.ok());
  EXPECT_EQ(prepared->sampling().temperature(), 0.5f);
  EXPECT_EQ(prepared->sampling().seed(), 77);
  EXPECT_EQ(prepared->stopping().max_tokens(), 253);
  request_.mutable_request()->mutable_sampling()->set_seed(0);
  request_.mutable_request()->mutable_sampling()->set_temperature(0);
  request_.mutable_request()->mutable_stopping()->set_max_tokens(1000);
  prepared = Prepare();
  EXPECT_EQ(prepared->sampling().seed(), 0);
  EXPECT_EQ(prepared->sampling().temperature(), 0);
  EXPECT_EQ(prepared->stopping().max_tokens(), 253);
  EXPECT_EQ(prepared->model_digest(), engine_.worker.digest);
}

TEST_F(PromptTest, FullBlocksAreNamed) {
  request_.mutable_request()->set_text(std::string(70, 'x'));
  EXPECT_EQ(Prepare()->block_hashes_size(), 2);
}

TEST_F(PromptTest, TokensTurnsAreAppended) {
  request_.mutable_session()->mutable_token_ids()->Add(5);
  request_.mutable_request()->mutable_token_ids()->add_ids(6);
  EXPECT_EQ(Prompt(), (Ids{5, 6}));
  EXPECT_EQ(kept_, 1);
}

TEST_F(PromptTest, AChatContinuesAfterTheTokensOfTheResponse) {
  Ask("more");
  // The word is five byte tokens, as the model generated it. A tokenizer would make one token of
  // it.
  Answered("opera", Join({Bytes("opera"), {fakes::kEndToken}}));
  EXPECT_EQ(Prompt(), Join({log_, NextTurn("more")}));
  EXPECT_EQ(kept_, log_.size());
}

TEST_F(PromptTest, AnInterruptedResponseGetsItsEnd) {
  Ask("more");
  Answered("ope", Bytes("ope"));
  EXPECT_EQ(Prompt(), Join({log_, {fakes::kEndToken}, NextTurn("more")}));
}

TEST_F(PromptTest, AnEmptyResponseStaysInTheLog) {
  Ask("more");
  Answered("", {fakes::kEndToken});
  EXPECT_EQ(Prompt(), Join({log_, NextTurn("more")}));
}

TEST_F(PromptTest, AStopStringStaysInTheLog) {
  Ask("more");
  Answered("one", Bytes("one STOP"));
  EXPECT_EQ(Prompt(), Join({log_, {fakes::kEndToken}, NextTurn("more")}));
}

TEST_F(PromptTest, ARewrittenResponseBranchesTheLog) {
  Ask("more");
  Answered("<think>a</think>b", Join({Bytes("<think>a</think>b"), {fakes::kEndToken}}));
  EXPECT_EQ(Prompt(), Join({FirstPrompt(), Bytes("b"), {fakes::kEndToken}, NextTurn("more")}));
  EXPECT_EQ(kept_, FirstPrompt().size());
}

TEST_F(PromptTest, AnOtherFirstTurnBranchesTheLog) {
  Ask("more");
  Answered("b", Join({Bytes("b"), {fakes::kEndToken}}));
  // The template, or a tool of this turn, now renders the first message differently.
  request_.mutable_session()->mutable_messages(0)->set_content("ho");
  Prompt();
  EXPECT_EQ(kept_, 7);  // <|start|>user\nh
}

TEST_F(PromptTest, RefusesAPromptThatDoesNotFit) {
  request_.mutable_request()->set_text(std::string(256, 'x'));
  EXPECT_EQ(Prepare().status().code(), StatusCode::kInvalidArgument);
  request_.mutable_request()->set_text(std::string(255, 'x'));
  EXPECT_TRUE(Prepare().ok());
  request_.mutable_session()->mutable_token_ids()->Add(5);
  const absl::Status full = Prepare().status();
  EXPECT_EQ(full.code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(full.message(), "TruncateSession"));

  request_.clear_session();
  request_.mutable_request()->mutable_token_ids()->add_ids(fakes::kByteVocabSize);
  const absl::Status outside = Prepare().status();
  EXPECT_EQ(outside.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(outside.message(), "vocabulary")) << outside;
  // An invalid log of a session is not the client's fault.
  Ask("hi");
  Answered("x", {fakes::kByteVocabSize});
  request_.mutable_request()->set_session_id("s7");
  const absl::Status damaged = Prepare().status();
  EXPECT_EQ(damaged.code(), StatusCode::kDataLoss);
  EXPECT_TRUE(absl::StrContains(damaged.message(), "session 's7'")) << damaged;
  EXPECT_TRUE(absl::StrContains(damaged.message(), "vocabulary")) << damaged;
  EXPECT_TRUE(CheckTextFits(engine_.worker, 1000).ok());
  EXPECT_FALSE(CheckTextFits(engine_.worker, 1 << 20).ok());
}

TEST_F(PromptTest, NoTemplateNoChat) {
  Ask("x");
  engine_.worker.chat_template = absl::FailedPreconditionError("the model file has no template");
  EXPECT_EQ(Prepare().status().code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace tidepool::service
