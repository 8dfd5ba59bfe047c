// Renders published chat templates and compares with transformers (jinja2). The reference is
// tests/engine/tokenizer/golden/published_golden.json; make_published_golden.py writes it.
// For other templates: published_templates_test GOLDEN.json FOLDER
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "engine/chat_template/chat_template.h"
#include "gtest/gtest.h"
#include "kernels/base/check.h"

namespace tidepool::engine {
namespace {

using Json = nlohmann::ordered_json;

struct Files {
  std::string golden = "tests/engine/tokenizer/golden/published_golden.json";
  std::string templates = "tests/engine/tokenizer/golden/published";
};

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  CHECK(file.good()) << "cannot read " << path;
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

ChatInputs InputsOf(const Json& given, const Json& now) {
  ChatInputs inputs;
  inputs.messages = given["messages"];
  inputs.tools = given["tools"];
  inputs.template_kwargs = given["template_kwargs"];
  inputs.add_generation_prompt = given["add_generation_prompt"].get<bool>();
  inputs.bos_token = "<s>";
  inputs.eos_token = "</s>";
  inputs.now = absl::FromUnixSeconds(now.get<int64_t>());
  return inputs;
}

class PublishedTemplatesTest : public testing::Test {
 public:
  explicit PublishedTemplatesTest(Files files) : files_(std::move(files)) {}
  void TestBody() override;

 private:
  const Files files_;
};

void PublishedTemplatesTest::TestBody() {
  const Json golden = Json::parse(ReadFile(files_.golden));
  ASSERT_FALSE(golden["cases"].empty());
  int texts = 0;
  for (const Json& item : golden["cases"]) {
    const auto name = item["template"].get<std::string>();
    const auto chat = ChatTemplate::Parse(ReadFile(absl::StrCat(files_.templates, "/", name)));
    if (!chat.ok()) {
      EXPECT_TRUE(item["text"].is_null()) << name << ": " << chat.status();
      continue;
    }
    const size_t number = item["conversation"].get<size_t>();
    const auto text = chat->RenderText(InputsOf(golden["conversations"][number], golden["now"]));
    if (item["text"].is_null()) {
      EXPECT_FALSE(text.ok()) << name << ", conversation " << number << ": " << *text;
      continue;
    }
    ++texts;
    EXPECT_TRUE(text.ok()) << name << ", conversation " << number << ": " << text.status();
    if (text.ok()) {
      EXPECT_EQ(*text, item["text"].get<std::string>()) << name << ", conversation " << number;
    }
  }
  EXPECT_GE(texts, static_cast<int>(golden["cases"].size()) / 2);
}

}  // namespace
}  // namespace tidepool::engine

int main(int argc, char** argv) {
  using tidepool::engine::Files;
  using tidepool::engine::PublishedTemplatesTest;
  testing::InitGoogleTest(&argc, argv);
  const Files files = argc == 3 ? Files{.golden = argv[1], .templates = argv[2]} : Files();
  testing::RegisterTest("PublishedTemplatesTest", "RendersAsTransformersDoes", nullptr, nullptr,
                        __FILE__, __LINE__,
                        [files]() -> testing::Test* { return new PublishedTemplatesTest(files); });
  return RUN_ALL_TESTS();
}
