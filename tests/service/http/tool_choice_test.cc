// Converts the fields of a chat about tool calls and reasoning.
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "service/http/openai_request.h"

namespace tidepool::service {
namespace {

// Parses a chat that has one message and these fields.
absl::StatusOr<OpenAiRequest> ChatWith(const std::string& fields) {
  const absl::StatusOr<Json> body =
      ParseJsonBody(absl::StrCat(R"({"messages":[{"role":"user","content":"hi"}],)", fields, "}"));
  if (!body.ok()) return body.status();
  return ParseChatRequest(*body);
}

v1::GenerateRequest Only(const absl::StatusOr<OpenAiRequest>& request) {
  EXPECT_TRUE(request.ok()) << request.status();
  return request.ok() ? request->choices[0] : v1::GenerateRequest();
}

TEST(ToolChoiceTest, EveryFormArrives) {
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"f","strict":true}},)"
                            R"({"type":"function","function":{"name":"g"}}],"tool_choice":)";
  const auto chat = [&tools](const std::string& choice) {
    return Only(ChatWith(tools + choice)).chat();
  };
  EXPECT_FALSE(chat(R"("auto")").has_tool_choice());
  EXPECT_EQ(chat(R"("required")").tool_choice().mode(), v1::ToolChoice::REQUIRED);
  EXPECT_FALSE(chat(R"("required")").has_parallel_tool_calls());
  EXPECT_FALSE(chat(R"("required","parallel_tool_calls":false)").parallel_tool_calls());
  const v1::Chat named = chat(R"({"type":"function","function":{"name":"g"}})");
  EXPECT_EQ(named.tool_choice().mode(), v1::ToolChoice::REQUIRED);
  EXPECT_EQ(named.tool_choice().names(0), "g");
  EXPECT_TRUE(named.has_parallel_tool_calls() && !named.parallel_tool_calls());
  const v1::Chat allowed =
      chat(R"({"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[)"
           R"({"type":"function","function":{"name":"f"}}]}})");
  EXPECT_EQ(allowed.tool_choice().mode(), v1::ToolChoice::AUTO);
  EXPECT_EQ(allowed.tool_choice().names(0), "f");
  EXPECT_FALSE(allowed.has_parallel_tool_calls());
  const absl::StatusOr<OpenAiRequest> unknown =
      ChatWith(tools + R"({"type":"function","function":{"name":"h"}})");
  EXPECT_TRUE(absl::StrContains(unknown.status().message(), "tool_choice names"))
      << unknown.status();
}

TEST(ThinkingBudgetTest, HasTwoNames) {
  EXPECT_EQ(Only(ChatWith(R"("thinking_budget_tokens":7)")).thinking_budget_tokens(), 7);
  EXPECT_EQ(Only(ChatWith(R"("thinking_token_budget":0)")).thinking_budget_tokens(), 0);
  EXPECT_FALSE(Only(ChatWith(R"("thinking_budget_tokens":-1)")).has_thinking_budget_tokens());
}

TEST(ToolChoiceTest, FaultsAreNamed) {
  const struct {
    const char *fields, *field, *words;
  } table[] = {
      {R"("tool_choice":"required")", "tool_choice", "needs tools"},
      {R"("tool_choice":"any")", "tool_choice", "allowed_tools"},
      {R"("tool_choice":["f"])", "tool_choice", "required"},
      {R"("tool_choice":{"type":"function"})", "tool_choice.function", "missing"},
      {R"("tool_choice":{"type":"function","function":{}})", "tool_choice.function.name",
       "missing"},
      {R"("tool_choice":{"type":"allowed_tools"})", "tool_choice.allowed_tools", "missing"},
      {R"("tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"any","tools":[]}})",
       "tool_choice.allowed_tools.mode", "required"},
      {R"("tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[]}})",
       "tool_choice.allowed_tools.tools", "empty"},
      {R"("thinking_budget_tokens":-2)", "thinking_budget_tokens", "-1"},
  };
  for (const auto& [fields, field, words] : table) {
    const absl::Status status = ChatWith(fields).status();
    EXPECT_TRUE(absl::StrContains(status.message(), field)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), words)) << status;
  }
}

}  // namespace
}  // namespace tidepool::service
