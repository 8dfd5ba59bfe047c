// The templates of all families of models accept an earlier call that max_tokens has cut.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "nlohmann/json.hpp"
#include "service/tools/tool_syntax.h"
#include "service/worker/chat_prompt.h"
#include "tests/service/test_server.h"

namespace tidepool::service {
namespace {

constexpr char kTools[] =
    R"([{"type": "function", "function": {"name": "get_weather", "description": "Does it.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
                       "required": ["city"]}}}])";

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  CHECK(file.good()) << "cannot read " << path;
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

// The arguments are text, as in OpenAI's format.
ChatMessages Conversation(const std::string& arguments) {
  ChatMessages messages;
  const auto add = [&messages](const char* role, const char* content) {
    v1::ChatMessage* message = messages.Add();
    message->set_role(role);
    message->set_content(content);
    return message;
  };
  add("user", "How is the weather?");
  nlohmann::ordered_json call = {{"id", "abcdefgh1"}, {"type", "function"}};
  call["function"] = {{"name", "get_weather"}, {"arguments", arguments}};
  add("assistant", "")->set_tool_calls_json(nlohmann::ordered_json::array({call}).dump());
  add("tool", "The arguments are not complete.")->set_tool_call_id("abcdefgh1");
  return messages;
}

TEST(CutCallsTest, EveryFamilyRendersThem) {
  constexpr char kPublished[] = "tests/engine/tokenizer/golden/published/";
  constexpr char kGolden[] = "tests/engine/tokenizer/golden/templates/";
  constexpr char kOwn[] = "tests/service/tools/templates/";
  TestEngine engine;
  WorkerModel& model = engine.worker;
  for (const std::string& path :
       {absl::StrCat(kPublished, "Qwen-Qwen3-0.6B.jinja"),
        absl::StrCat(kPublished, "Qwen3-Coder.jinja"),
        absl::StrCat(kPublished, "ByteDance-Seed-OSS.jinja"),
        absl::StrCat(kPublished, "ibm-granite-granite-4.0.jinja"),
        absl::StrCat(kPublished, "mistralai-Mistral-Nemo-Instruct-2407.jinja"),
        absl::StrCat(kPublished, "openai-gpt-oss-120b.jinja"),
        absl::StrCat(kGolden, "chatml.jinja"), absl::StrCat(kGolden, "command_r.jinja"),
        absl::StrCat(kGolden, "deepseek_r1.jinja"), absl::StrCat(kGolden, "glm45.jinja"),
        absl::StrCat(kGolden, "hermes_tools.jinja"), absl::StrCat(kGolden, "llama31.jinja"),
        absl::StrCat(kOwn, "deepseek_dsml.jinja"), absl::StrCat(kOwn, "deepseek_v31.jinja"),
        absl::StrCat(kOwn, "granite.jinja"), absl::StrCat(kOwn, "llama_pythonic.jinja"),
        absl::StrCat(kOwn, "mistral_args.jinja"), absl::StrCat(kOwn, "qwen_xml.jinja")}) {
    const std::string source = ReadFile(path);
    model.chat_template = engine::ChatTemplate::Parse(source);
    model.tool_syntax = ToolSyntaxOf(source);
    v1::Chat chat;
    chat.set_tools_json(kTools);
    for (const char* arguments : {R"({"city": "Colo)", R"({"city": "Colo", "un)", "{city: Colo}"}) {
      const auto rendered =
          RenderChat(model, chat, Conversation(arguments), absl::FromUnixSeconds(1'800'000'000));
      ASSERT_TRUE(rendered.ok()) << path << ": " << rendered.status();
      EXPECT_TRUE(absl::StrContains(rendered->text, "Colo")) << path << ": " << rendered->text;
    }
  }
}

}  // namespace
}  // namespace tidepool::service
