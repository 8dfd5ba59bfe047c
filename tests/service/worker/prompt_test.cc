#include "service/worker/prompt.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
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
  // What the log holds: the prompt of "hi", then this answer.
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

TEST_F(PromptTest, AChatGoesOnBehindTheAnswersOwnTokens) {
  Ask("more");
  // The word as five bytes: as the model made it, not as a tokenizer would.
  Answered("opera", Join({Bytes("opera"), {fakes::kEndToken}}));
  EXPECT_EQ(Prompt(), Join({log_, NextTurn("more")}));
  EXPECT_EQ(kept_, log_.size());
}

TEST_F(PromptTest, AnAnswerCutShortGetsItsEnd) {
  Ask("more");
  Answered("ope", Bytes("ope"));
  EXPECT_EQ(Prompt(), Join({log_, {fakes::kEndToken}, NextTurn("more")}));
}

TEST_F(PromptTest, AnAnswerOfNothing) {
  Ask("more");
  Answered("", {fakes::kEndToken});
  EXPECT_EQ(Prompt(), Join({log_, NextTurn("more")}));
}

TEST_F(PromptTest, AStopStringStaysInTheLog) {
  Ask("more");
  Answered("one", Bytes("one STOP"));
  EXPECT_EQ(Prompt(), Join({log_, {fakes::kEndToken}, NextTurn("more")}));
}

TEST_F(PromptTest, ARewrittenAnswerBranchesTheLog) {
  Ask("more");
  Answered("<think>a</think>b", Join({Bytes("<think>a</think>b"), {fakes::kEndToken}}));
  EXPECT_EQ(Prompt(), Join({FirstPrompt(), Bytes("b"), {fakes::kEndToken}, NextTurn("more")}));
  EXPECT_EQ(kept_, FirstPrompt().size());
}

TEST_F(PromptTest, AnOtherFirstTurnBranchesTheLog) {
  Ask("more");
  Answered("b", Join({Bytes("b"), {fakes::kEndToken}}));
  // As if the template, or a tool given with the turn, wrote the first message otherwise now.
  request_.mutable_session()->mutable_messages(0)->set_content("ho");
  Prompt();
  EXPECT_EQ(kept_, 7);  // <|start|>user\nh
}

TEST_F(PromptTest, WhatDoesNotFitIsRefused) {
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
  // A session's log may come from another model.
  Ask("hi");
  Answered("x", {fakes::kByteVocabSize});
  const absl::Status foreign = Prepare().status();
  EXPECT_EQ(foreign.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(foreign.message(), "vocabulary")) << foreign;
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
