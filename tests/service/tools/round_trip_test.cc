// Random messages of assistants, written by the templates of each family and read by the parser,
// must come back. `round_trip_test --messages=N` tries N messages of each family.
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "engine/chat_template/chat_template.h"
#include "kernels/base/check.h"
#include "nlohmann/json.hpp"
#include "service/tools/tool_format.h"
#include "service/tools/tool_syntax.h"
#include "tests/service/tools/parsed_response.h"

namespace tidepool::service {
namespace {

using Json = nlohmann::ordered_json;

int& MessagesPerFamily() {
  static int messages = 150;
  return messages;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  CHECK(file.good()) << "cannot read " << path;
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

constexpr char kPublished[] = "tests/engine/tokenizer/golden/published/";
constexpr char kGolden[] = "tests/engine/tokenizer/golden/templates/";
constexpr char kOwn[] = "tests/service/tools/templates/";

// What the messages of a family can be.
struct Family {
  std::string path;
  v1::ToolSyntax syntax;
  std::string begin;  // the text of the template before a response
  std::string end;    // and after it
  int max_calls = 4;
  bool reasoning = true;
  bool content_with_calls = true;
  // The names of the parameters are those of the schemas, and have their types.
  bool typed = false;
  bool describes_tools = true;  // the template can describe the tools of this test
};

// Long because it is a table of cases.
const std::vector<Family>& Families() {
  static const auto* const families = new std::vector<Family>{
      {.path = absl::StrCat(kPublished, "Qwen-Qwen3-0.6B.jinja"),
       .syntax = v1::TOOL_CALL_TAGS,
       .begin = "<|im_start|>assistant\n",
       .end = "<|im_end|>\n"},
      {.path = absl::StrCat(kPublished, "ibm-granite-granite-4.0.jinja"),
       .syntax = v1::TOOL_CALL_TAGS,
       .begin = "<|start_of_role|>assistant<|end_of_role|>",
       .end = "<|end_of_text|>\n",
       .reasoning = false},
      {.path = absl::StrCat(kPublished, "Qwen3-Coder.jinja"),
       .syntax = v1::QWEN_XML,
       .begin = "<|im_start|>assistant\n",
       .end = "<|im_end|>\n",
       .reasoning = false,
       .typed = true},
      {.path = absl::StrCat(kOwn, "qwen_xml.jinja"),
       .syntax = v1::QWEN_XML,
       .begin = "<|im_start|>assistant\n",
       .end = "<|im_end|>\n",
       .typed = true},
      {.path = absl::StrCat(kGolden, "glm45.jinja"),
       .syntax = v1::GLM_XML,
       .begin = "<|assistant|>",
       .end = "",
       .typed = true},
      {.path = absl::StrCat(kGolden, "llama31.jinja"),
       .syntax = v1::LLAMA3_JSON,
       .begin = "<|start_header_id|>assistant<|end_header_id|>\n\n",
       .end = "<|eot_id|>",
       .max_calls = 1,
       .reasoning = false,
       .content_with_calls = false},
      {.path = absl::StrCat(kOwn, "llama_pythonic.jinja"),
       .syntax = v1::LLAMA_PYTHONIC,
       .begin = "<|start_header_id|>assistant<|end_header_id|>\n\n",
       .end = "<|eot_id|>",
       .reasoning = false,
       .content_with_calls = false},
      {.path = absl::StrCat(kPublished, "mistralai-Mistral-Nemo-Instruct-2407.jinja"),
       .syntax = v1::MISTRAL_LIST,
       .begin = "[/INST]",
       .end = "</s>",
       .reasoning = false,
       .content_with_calls = false},
      {.path = absl::StrCat(kOwn, "mistral_args.jinja"),
       .syntax = v1::MISTRAL_ARGS,
       .begin = "[/INST]",
       .end = "</s>"},
      {.path = absl::StrCat(kGolden, "deepseek_r1.jinja"),
       .syntax = v1::DEEPSEEK_V3,
       .begin = "<｜Assistant｜>",
       .end = "<｜end▁of▁sentence｜>",
       .reasoning = false},
      {.path = absl::StrCat(kOwn, "deepseek_v31.jinja"),
       .syntax = v1::DEEPSEEK_V31,
       .begin = "<｜Assistant｜>",
       .end = "<｜end▁of▁sentence｜>"},
      {.path = absl::StrCat(kOwn, "deepseek_dsml.jinja"),
       .syntax = v1::DEEPSEEK_DSML,
       .begin = "<｜Assistant｜>",
       .end = "<｜end▁of▁sentence｜>"},
      {.path = absl::StrCat(kGolden, "gpt_oss.jinja"),
       .syntax = v1::HARMONY,
       .begin = "<|start|>assistant",
       .end = "",
       .max_calls = 1,
       .content_with_calls = false},
      {.path = absl::StrCat(kOwn, "granite.jinja"),
       .syntax = v1::GRANITE,
       .begin = "<|start_of_role|>assistant<|end_of_role|>",
       .end = "<|end_of_text|>\n"},
      {.path = absl::StrCat(kPublished, "ByteDance-Seed-OSS.jinja"),
       .syntax = v1::SEED_XML,
       .begin = "<seed:bos>assistant\n",
       .end = "<seed:eos>",
       .typed = true},
      {.path = absl::StrCat(kGolden, "command_r.jinja"),
       .syntax = v1::COMMAND_R,
       .begin = "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
       .end = "<|END_OF_TURN_TOKEN|>",
       .reasoning = false,
       .describes_tools = false},
  };
  return *families;
}

// The schemas of the parameters, by name.
Json Properties() {
  return {{"text", {{"type", "string"}}},
          {"count", {{"type", "integer"}}},
          {"ratio", {{"type", "number"}}},
          {"flag", {{"type", "boolean"}}},
          {"list", {{"type", "array"}}},
          {"object", {{"$ref", "#/$defs/thing"}}},
          {"note", {{"anyOf", {{{"type", "string"}}, {{"type", "null"}}}}}}};
}

Json Tools() {
  Json tools = Json::array();
  for (const char* name : {"get_weather", "run-code", "a.b:c"}) {
    tools.push_back({{"type", "function"},
                     {"function",
                      {{"name", name},
                       {"description", "Does it."},
                       {"parameters",
                        {{"type", "object"},
                         {"properties", Properties()},
                         {"$defs", {{"thing", {{"type", "object"}}}}}}}}}});
  }
  return tools;
}

class Messages {
 public:
  Messages(const Family& family, uint32_t seed) : family_(family), random_(seed) {}

  // Returns a message of the assistant.
  Json Next() {
    const int calls = OneIn(3) ? 0 : Below(family_.max_calls + 1);
    Json message = {{"role", "assistant"}, {"content", ""}};
    if (calls == 0 || (family_.content_with_calls && OneIn(2))) message["content"] = Prose();
    if (family_.reasoning && OneIn(2)) {
      const std::string thought = Prose();
      message["reasoning_content"] = thought;
      if (family_.syntax == v1::HARMONY) message["thinking"] = thought;
    }
    for (int i = 0; i < calls; ++i) {
      const Json tools = Tools();
      std::string name = tools[Below(static_cast<int>(tools.size()))]["function"]["name"];
      if (family_.syntax == v1::LLAMA_PYTHONIC) name = "get_weather";
      message["tool_calls"].push_back({{"id", absl::StrCat("abcdefgh", i)},
                                       {"type", "function"},
                                       {"function", {{"name", name}, {"arguments", Arguments()}}}});
    }
    return message;
  }

 private:
  int Below(int count) { return static_cast<int>(random_() % static_cast<uint32_t>(count)); }
  bool OneIn(int count) { return Below(count) == 0; }

  // Text with everything that could confuse a parser.
  std::string RawText() {
    static const char* const parts[] = {"a",
                                        "Zoë",
                                        " ",
                                        "\n",
                                        "\"",
                                        "'",
                                        "\\",
                                        "{",
                                        "}",
                                        "[",
                                        "]",
                                        "<",
                                        ">",
                                        "(",
                                        ")",
                                        ",",
                                        "=",
                                        "天気",
                                        "😀",
                                        "\t",
                                        ": ",
                                        "<tool_call>",
                                        "</tool_call>",
                                        "</function>",
                                        "<parameter=x>",
                                        "</parameter>",
                                        "</arg_value>",
                                        "<arg_key>",
                                        "[TOOL_CALLS]",
                                        "[ARGS]",
                                        "<think>",
                                        "<|call",
                                        "null",
                                        "True",
                                        "```",
                                        "\n```\n",
                                        "{\"name\": \"get_weather\"",
                                        "<｜tool▁call▁end｜>",
                                        "</｜DSML｜parameter>",
                                        "\\u00e9",
                                        "\\n",
                                        "end."};
    std::string text;
    for (int n = Below(8); n > 0; --n) text += parts[Below(std::size(parts))];
    return text;
  }

  // Text that is not a call, does not begin or end with white space, and has no marker.
  std::string Prose() {
    static const char* const words[] = {"The", "wäre",  "a < b", "{x}", "[1]", "天気", "\n\n",
                                        "\n",  "`f()`", "\"q\"", "<b>", "-",   "#1"};
    std::string text = "Well";
    for (int n = Below(8); n > 0; --n) text += absl::StrCat(" ", words[Below(std::size(words))]);
    return absl::StrCat(text, " ok.");
  }

  Json Value(int depth) {
    switch (Below(depth > 2 ? 5 : 7)) {
      case 0:
        return Text();
      case 1:
        return Below(2000) - 1000;
      case 2:
        return Below(1000) / 8.0;
      case 3:
        return OneIn(2);
      case 4:
        return Json();
      case 5: {
        Json list = Json::array();
        for (int n = Below(4); n > 0; --n) list.push_back(Value(depth + 1));
        return list;
      }
      default: {
        Json object = Json::object();
        for (int n = Below(4); n > 0; --n)
          object[absl::StrCat("k", n, OneIn(3) ? "é\"" : "")] = Value(depth + 1);
        return object;
      }
    }
  }

  Json Typed(const std::string& key) {
    if (key == "text" || key == "note") return Text();
    if (key == "count") return Below(2000) - 1000;
    if (key == "ratio") return Below(1000) / 8.0;
    if (key == "flag") return OneIn(2);
    Json value = Value(1);
    while (key == "list" ? !value.is_array() : !value.is_object()) value = Value(1);
    return value;
  }

  // In a value between markers, three texts are ambiguous: an end marker and what follows it, a
  // line with only the end marker at the end, and "null" if the value may be null.
  std::string Text() {
    const std::string text = RawText();
    if (!family_.typed) return text;
    const std::string bare = absl::StrReplaceAll(text, {{" ", ""}, {"\n", ""}, {"\t", ""}});
    for (const char* end : {"</parameter>", "</arg_value>"}) {
      for (const char* next : {"<parameter=", "</function>", "<arg_key>", "</tool_call>", end}) {
        if (absl::StrContains(bare, absl::StrCat(end, next))) return "x";
      }
    }
    for (const char* end : {"</parameter>", "</arg_value>"}) {
      if (absl::EndsWith(bare, end)) return text + ".";
    }
    return absl::StripAsciiWhitespace(text) == "null" ? "z" : text;
  }

  Json Arguments() {
    Json arguments = Json::object();
    if (family_.typed || family_.syntax == v1::DEEPSEEK_DSML) {
      const Json properties = Properties();
      for (const auto& [key, schema] : properties.items()) {
        if (OneIn(2)) arguments[key] = Typed(key);
      }
      return arguments;
    }
    for (int n = Below(4); n > 0; --n) {
      const bool plain = family_.syntax == v1::LLAMA_PYTHONIC || !OneIn(4);
      arguments[absl::StrCat("k", n, plain ? "" : " é\"")] = Value(0);
    }
    return arguments;
  }

  const Family& family_;
  std::mt19937 random_;
};

// Returns what the template writes for the message.
std::string Write(const engine::ChatTemplate& chat, const Family& family, const Json& message) {
  engine::ChatInputs inputs;
  inputs.messages = {{{"role", "user"}, {"content", "Hi"}}, message};
  if (family.describes_tools) inputs.tools = Tools();
  inputs.bos_token = "<s>";
  inputs.eos_token = "</s>";
  inputs.add_generation_prompt = false;
  const auto pieces = chat.Render(inputs);
  CHECK(pieces.ok()) << family.path << ": " << pieces.status();
  std::string text;
  for (const engine::TextPiece& piece : *pieces) text += piece.text;
  const size_t begin = text.find(family.begin);
  CHECK(begin != text.npos) << family.path << ": " << text;
  text.erase(0, begin + family.begin.size());
  absl::string_view rest = text;
  CHECK(absl::ConsumeSuffix(&rest, family.end)) << family.path << ": " << text;
  return std::string(rest);
}

Json ParsedArguments(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return json.is_discarded() ? Json(text) : json;
}

TEST(RoundTripTest, MessagesComeBack) {
  for (const Family& family : Families()) {
    const std::string source = ReadFile(family.path);
    const auto chat = engine::ChatTemplate::Parse(source);
    ASSERT_TRUE(chat.ok()) << family.path << ": " << chat.status();
    EXPECT_EQ(ToolSyntaxOf(source), family.syntax) << family.path;
    ResponseFormat format = {.syntax = family.syntax,
                             .reasoning = ReasoningMarkersOf(source),
                             .tools = std::make_shared<ToolSchemas>(Tools().dump())};
    Messages messages(family, /*seed=*/family.syntax);
    std::mt19937 random(1);
    for (int i = 0; i < MessagesPerFamily(); ++i) {
      const Json message = messages.Next();
      std::string text = Write(*chat, family, message);
      // DeepSeek's prompts end with the first marker of reasoning, or with the last one.
      format.in_reasoning = false;
      if (absl::StrContains(family.path, "/deepseek_v31") ||
          absl::StrContains(family.path, "/deepseek_dsml")) {
        format.in_reasoning = true;
        absl::string_view rest = text;
        absl::ConsumePrefix(&rest, "<think>");
        text = std::string(rest);
      }
      const ParsedResponse parsed = ParseWhole(format, text);
      EXPECT_EQ(parsed.content, message.value("content", "")) << family.path << ": " << text;
      EXPECT_EQ(parsed.reasoning, message.value("reasoning_content", ""))
          << family.path << ": " << text;
      const Json calls = message.value("tool_calls", Json::array());
      ASSERT_EQ(parsed.calls.size(), calls.size()) << family.path << ": " << text << "\n" << parsed;
      for (size_t n = 0; n < calls.size(); ++n) {
        EXPECT_EQ(parsed.calls[n].name, calls[n]["function"]["name"]) << text;
        EXPECT_EQ(ParsedArguments(parsed.calls[n].arguments), calls[n]["function"]["arguments"])
            << family.path << ": " << text;
      }
      if (i % 10 == 0) {
        EXPECT_EQ(FindBadSplit(format, text, &random), "") << family.path << ": " << text;
      }
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace tidepool::service

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    absl::string_view flag = argv[i];
    if (absl::ConsumePrefix(&flag, "--messages=")) {
      tidepool::service::MessagesPerFamily() = std::stoi(std::string(flag));
    }
  }
  return RUN_ALL_TESTS();
}
