// Tool calls and reasoning in the OpenAI-compatible API, over real sockets.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "service/http/json.h"
#include "tests/service/http/http_fixture.h"

namespace tidepool::service {
namespace {

class HttpToolsTest : public HttpFixture {};

TEST_F(HttpToolsTest, AChatWithTools) {
  Start({.tool_syntax = v1::TOOL_CALL_TAGS});
  const std::string reply =
      "Look:\n<tool_call>{\"name\":\"f\",\"arguments\":{\"x\":1}}</tool_call>";
  // <|start|>user\nhi<|end_of_text|><|start|>assistant\n
  engine_->model.SetScript(fakes::Replies(20, WithEnd(reply), 'x'));
  const std::string body = R"({"messages":[{"role":"user","content":"hi"}],)"
                           R"("tools":[{"type":"function","function":{"name":"f"}}])";
  const Json whole = Parsed(Post("/v1/chat/completions", body + "}"));
  const Json& choice = whole["choices"][0];
  EXPECT_EQ(choice["message"]["content"], "Look:") << whole;
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["name"], "f");
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], "{\"x\":1}");
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  std::string content, arguments;
  int begun = 0;
  for (const Json& event : Events(Post("/v1/chat/completions", body + R"(,"stream":true})"))) {
    const Json& delta = event["choices"][0]["delta"];
    if (delta.contains("content")) content += delta["content"].get<std::string>();
    if (!delta.contains("tool_calls")) continue;
    const Json& call = delta["tool_calls"][0];
    EXPECT_EQ(call["index"], 0);
    if (call.contains("id")) ++begun;
    arguments += call["function"]["arguments"].get<std::string>();
  }
  EXPECT_EQ(content, "Look:");
  EXPECT_EQ(begun, 1);
  EXPECT_EQ(arguments, "{\"x\":1}");
}

TEST_F(HttpToolsTest, AChatWithReasoning) {
  Start({.thinks_after = "<think>"});
  // <|start|>user\nhi<|end_of_text|><|start|>assistant\n
  engine_->model.SetScript(fakes::Replies(20, WithEnd("<think>\nHm.\n</think>\n\nHi"), 'x'));
  const std::string body = R"({"messages":[{"role":"user","content":"hi"}])";
  const Json whole = Parsed(Post("/v1/chat/completions", body + "}"));
  EXPECT_EQ(whole["choices"][0]["message"]["content"], "Hi") << whole;
  EXPECT_EQ(whole["choices"][0]["message"]["reasoning_content"], "Hm.");
  EXPECT_EQ(whole["usage"]["completion_tokens_details"]["reasoning_tokens"], 5);
  std::string content, reasoning;
  for (const Json& event : Events(Post("/v1/chat/completions", body + R"(,"stream":true})"))) {
    const Json& delta = event["choices"][0]["delta"];
    content += delta.value("content", "");
    reasoning += delta.value("reasoning_content", "");
  }
  EXPECT_EQ(content, "Hi");
  EXPECT_EQ(reasoning, "Hm.");
}

}  // namespace
}  // namespace tidepool::service
