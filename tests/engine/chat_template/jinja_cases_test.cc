// Compares small templates with Jinja's results; golden/make_jinja_cases.py generated the table.
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/chat_template/chat_template.h"
#include "gtest/gtest.h"
#include "tests/engine/tokenizer/test_vocabulary.h"

namespace tidepool::engine {
namespace {

using Json = nlohmann::ordered_json;

absl::StatusOr<std::string> Render(const std::string& source, const Json& variables) {
  const auto chat = ChatTemplate::Parse(source);
  if (!chat.ok()) return chat.status();
  ChatInputs inputs;
  inputs.template_kwargs = variables;
  return chat->RenderText(inputs);
}

TEST(JinjaCasesTest, TemplatesPrintTheSameAsJinja) {
  const Json golden = ReadGolden("jinja_cases.json");
  int texts = 0;
  for (const Json& item : golden["cases"]) {
    if (!item.contains("text")) continue;
    ++texts;
    const auto source = item["source"].get<std::string>();
    const auto text = Render(source, golden["variables"]);
    if (text.ok()) {
      EXPECT_EQ(*text, item["text"].get<std::string>()) << source;
    } else {
      ADD_FAILURE() << source << "\n" << text.status();
    }
  }
  EXPECT_GE(texts, 800);
}

TEST(JinjaCasesTest, TemplatesFailWhereJinjaFails) {
  const Json golden = ReadGolden("jinja_cases.json");
  int errors = 0;
  for (const Json& item : golden["cases"]) {
    if (!item.contains("error")) continue;
    ++errors;
    const auto source = item["source"].get<std::string>();
    const auto text = Render(source, golden["variables"]);
    ASSERT_FALSE(text.ok()) << source << "\n" << *text;
    const std::string message(text.status().message());
    EXPECT_EQ(message.rfind("chat template, line ", 0), 0u) << source << "\n" << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << source << "\n" << message;
    // In these cases, only a range that is too long exceeds a limit. All other errors come from
    // wrong templates or missing functions.
    const bool is_limit = source.find("range(") != std::string::npos &&
                          item["error"].get<std::string>() == "OverflowError";
    EXPECT_EQ(text.status().code() == absl::StatusCode::kResourceExhausted, is_limit) << source;
  }
  EXPECT_GE(errors, 150);
}

}  // namespace
}  // namespace tidepool::engine
