// Converts texts and chats to tokens, and tokens to texts.
#include "service/worker/text_calls.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tests/fakes/byte_tokenizer.h"
#include "tests/service/test_server.h"

namespace tidepool::service {
namespace {

TEST(TextCallsTest, AChatIsRenderedAndTokenised) {
  TestEngine engine;
  v1::TokenizeRequest request;
  v1::ChatMessage* message = request.mutable_chat()->add_messages();
  message->set_role("user");
  message->set_content("h<|start|>");
  request.set_return_tokens(true);
  const auto response = TokenizeFor(engine.worker, request, absl::UnixEpoch());
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_TRUE(absl::StartsWith(response->text(), "<|start|>user\nh<|start|><|end_of_text|>"))
      << response->text();
  // If a message contains the text of a control token, it stays text.
  EXPECT_EQ(response->token_ids(0), fakes::kStartToken);
  EXPECT_EQ(response->token_ids(7), '<');
  EXPECT_EQ(response->tokens_size(), response->token_ids_size());
  EXPECT_EQ(response->tokens(0), "<|start|>");
  EXPECT_EQ(response->context_length(), engine.worker.context_length);

  message->set_role("nobody");
  EXPECT_EQ(TokenizeFor(engine.worker, request, absl::UnixEpoch()).status().code(),
            absl::StatusCode::kInvalidArgument);
  message->set_role("user");
  request.set_text("too");
  EXPECT_EQ(TokenizeFor(engine.worker, request, absl::UnixEpoch()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(TextCallsTest, TheTokenizerIsDescribed) {
  TestEngine engine;
  v1::TokenizeRequest request;
  request.set_describe(true);
  const auto response = TokenizeFor(engine.worker, request, absl::UnixEpoch());
  ASSERT_TRUE(response.ok());
  EXPECT_EQ(response->tokenizer().eos_token(), "<|end_of_text|>");
  EXPECT_EQ(response->token_ids_size(), 0);
}

TEST(TextCallsTest, ControlTokensAreKeptIfAskedFor) {
  TestEngine engine;
  v1::DetokenizeRequest request;
  request.add_token_ids('a');
  request.add_token_ids(fakes::kEndToken);
  EXPECT_EQ(DetokenizeFor(engine.worker, request)->text(), "a");
  request.set_keep_special(true);
  EXPECT_EQ(DetokenizeFor(engine.worker, request)->text(), "a<|end_of_text|>");
}

}  // namespace
}  // namespace tidepool::service
