#include "engine/tokenizer/chat_template.h"

#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/civil_time.h"
#include "gtest/gtest.h"
#include "tests/engine/tokenizer/test_vocabulary.h"

namespace tidepool::engine {
namespace {

using Json = nlohmann::ordered_json;

std::string ReadTemplate(const std::string& name) {
  std::ifstream file(absl::StrCat("tests/engine/tokenizer/golden/templates/", name));
  EXPECT_TRUE(file.good()) << name;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

ChatInputs OneMessage(absl::string_view content) {
  ChatInputs inputs;
  inputs.messages = Json::array({{{"role", "user"}, {"content", std::string(content)}}});
  return inputs;
}

// The rendering, or the status as a text that no template makes.
std::string RenderSource(absl::string_view source, const ChatInputs& inputs,
                         const ChatTemplateLimits& limits = ChatTemplateLimits()) {
  const auto chat = ChatTemplate::Parse(source);
  if (!chat.ok()) return chat.status().ToString();
  const auto text = chat->RenderText(inputs, limits);
  return text.ok() ? *text : text.status().ToString();
}

TEST(ChatTemplateTest, TemplatesRenderAsTransformersDoes) {
  const Json golden = ReadGolden("chat_golden.json");
  ASSERT_GE(golden["cases"].size(), 100u);
  for (const Json& item : golden["cases"]) {
    const auto name = item["template"].get<std::string>();
    const auto chat = ChatTemplate::Parse(ReadTemplate(name));
    ASSERT_TRUE(chat.ok()) << name << ": " << chat.status();
    ChatInputs inputs;
    inputs.messages = item["inputs"]["messages"];
    inputs.tools = item["inputs"]["tools"];
    inputs.template_kwargs = item["inputs"]["template_kwargs"];
    inputs.add_generation_prompt = item["inputs"]["add_generation_prompt"].get<bool>();
    inputs.bos_token = "<s>";
    inputs.eos_token = "</s>";
    const auto text = chat->RenderText(inputs);
    if (item["text"].is_null()) {
      EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument)
          << name << " " << item["inputs"];
      EXPECT_TRUE(absl::StartsWith(text.status().message(), "chat template, line "))
          << text.status();
    } else {
      ASSERT_TRUE(text.ok()) << name << " " << item["inputs"] << " " << text.status();
      EXPECT_EQ(*text, item["text"].get<std::string>()) << name << " " << item["inputs"];
    }
  }
}

TEST(ChatTemplateTest, SnippetsRenderAsTransformersDoes) {
  const Json golden = ReadGolden("chat_golden.json");
  ASSERT_GE(golden["snippets"].size(), 80u);
  ChatInputs inputs;
  inputs.template_kwargs = golden["variables"];
  int failures = 0;
  for (const Json& item : golden["snippets"]) {
    const auto source = item["source"].get<std::string>();
    const auto chat = ChatTemplate::Parse(source);
    ASSERT_TRUE(chat.ok()) << source << "\n" << chat.status();
    const auto text = chat->RenderText(inputs);
    if (item["text"].is_null()) {
      EXPECT_FALSE(text.ok()) << source << "\n" << *text;
      ++failures;
    } else if (text.ok()) {
      EXPECT_EQ(*text, item["text"].get<std::string>()) << source;
    } else {
      ADD_FAILURE() << source << "\n" << text.status();
    }
  }
  EXPECT_GE(failures, 10);
}

TEST(ChatTemplateTest, ErrorsNameConstructAndLine) {
  const std::pair<std::string, std::string> cases[] = {
      {"\n\n{% include 'x' %}", "UNIMPLEMENTED: chat template, line 3: the tag 'include'"},
      {"{% call(x) m() %}{% endcall %}", "line 1: the tag 'call' is not supported"},
      {"{% for x in y recursive %}{% endfor %}", "recursive loops"},
      {"a\n{{ messages | wordwrap }}", "line 2: the filter 'wordwrap' is not supported"},
      {"{{ messages is filter }}", "the test 'filter' is not supported"},
      {"{{ 'a'.encode() }}", "the method 'encode' of a value of type str"},
      {"{{ '%d' % 1 }}", "formatting strings with '%'"},
      {"{{ 'a' | tojson(compact=1) }}", "tojson has no argument 'compact'"},
      {"{{ f(*x) }}", "unpacked arguments"},
      {"{{ {1: 2} }}", "dict keys of type int"},
      {"{{ '\xC3\xA9' | upper }}", "letters outside ASCII"},
      {"x\n{{ 'a", "INVALID_ARGUMENT: chat template, line 2: a string has no closing quote"},
      {"{{ 'a'", "line 1: a tag '{{' has no end"},
      {"{% if x %}\n", "a block has no {% endif %}"},
      {"{% endif %}", "there is no tag 'endif' here"},
      {"{% nonesuch %}", "there is no tag 'nonesuch' here"},
      {"{% break %}", "break outside of a loop"},
      {"{# x", "a comment '{#' has no '#}'"},
      {"{% raw %}", "no '{% endraw %}'"},
      {"{{ 1 + }}", "expected an expression, found '}}'"},
      {"{{ a b }}", "expected '}}', found 'b'"},
      {"{{ 1 $ 2 }}", "unexpected character '$'"},
      {"{{ (1 }}", "'}' closes no bracket"},
      {"{{ (1 2) }}", "expected ')', found '2'"},
      {"{{ 99999999999999999999 }}", "is too large"},
      {"{{ 9223372036854775807 + 1 }}", "does not fit in 64 bits"},
      {"{{ foo.bar }}", "line 1: 'foo' is undefined"},
      {"{{ messages[0].foo.bar }}", "has no attribute 'foo'"},
      {"\n{{ raise_exception('no such role') }}", "line 2: no such role"},
      {"\xFF", "the chat template is not UTF-8"},
  };
  for (const auto& [source, expected] : cases) {
    EXPECT_TRUE(absl::StrContains(RenderSource(source, OneMessage("x")), expected))
        << source << "\n"
        << RenderSource(source, OneMessage("x"));
  }
}

TEST(ChatTemplateTest, InputsAreChecked) {
  const auto chat = ChatTemplate::Parse("{{ messages }}");
  ASSERT_TRUE(chat.ok());
  const auto error = [&chat](const ChatInputs& inputs) {
    const auto text = chat->RenderText(inputs);
    EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(text.status().message());
  };
  ChatInputs inputs;
  inputs.messages = "hello";
  EXPECT_TRUE(absl::StrContains(error(inputs), "not an array"));
  inputs.messages = Json::array({"hello"});
  EXPECT_TRUE(absl::StrContains(error(inputs), "message 0 is not an object"));
  EXPECT_TRUE(absl::StrContains(error(OneMessage("\xFF")), "not UTF-8"));
  inputs = OneMessage("x");
  inputs.template_kwargs = {{"bos_token", "<|im_start|>"}};
  EXPECT_TRUE(absl::StrContains(error(inputs), "cannot set 'bos_token'"));
  inputs.template_kwargs = Json::array({1});
  EXPECT_TRUE(absl::StrContains(error(inputs), "not an object"));
  inputs = OneMessage("x");
  Json deep = 1;
  for (int i = 0; i < 200; ++i) deep = Json::array({deep});
  inputs.tools = deep;
  EXPECT_TRUE(absl::StrContains(error(inputs), "deeper than"));
  inputs = OneMessage("x");
  inputs.messages[0]["n"] = 18446744073709551615u;
  EXPECT_TRUE(absl::StrContains(error(inputs), "18446744073709551615"));
}

TEST(ChatTemplateTest, ClockOnlyWhenGiven) {
  const absl::string_view source =
      "{% if strftime_now is defined %}{{ strftime_now('%d %b %Y') }}{% else %}never{% endif %}";
  ChatInputs inputs;
  EXPECT_EQ(RenderSource(source, inputs), "never");
  inputs.now = absl::FromCivil(absl::CivilDay(2026, 2, 3), absl::UTCTimeZone());
  EXPECT_EQ(RenderSource(source, inputs), "03 Feb 2026");
}

TEST(ChatTemplateTest, CostIsBounded) {
  const auto code = [](absl::string_view source, const ChatTemplateLimits& limits) {
    const auto chat = ChatTemplate::Parse(source);
    EXPECT_TRUE(chat.ok()) << chat.status();
    return chat->RenderText(OneMessage("0123456789"), limits).status().code();
  };
  const ChatTemplateLimits usual;
  const ChatTemplateLimits small = {1000, 10000, 100000};
  constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;
  EXPECT_EQ(code("{% for i in range(200) %}0123456789{% endfor %}", small), kExhausted);
  EXPECT_EQ(code("{% for i in range(50) %}0123456789{% endfor %}", small), absl::StatusCode::kOk);
  EXPECT_EQ(
      code("{% for i in range(1000) %}{% for j in range(1000) %}{% endfor %}{% endfor %}", small),
      kExhausted);
  const absl::string_view doubling =
      "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}"
      "{% endfor %}";
  EXPECT_EQ(code(doubling, small), kExhausted);
  const absl::string_view searching =
      "{% set s = 'x' * 1000 %}{% for i in range(1000) %}{% if 'y' in s or s|length == 1 %}y"
      "{% endif %}{% endfor %}";
  EXPECT_EQ(code(searching, small), kExhausted);
  EXPECT_EQ(code("{{ 'x' * 99999999999 }}", usual), kExhausted);
  EXPECT_EQ(code("{{ range(99999999999) }}", usual), kExhausted);
  EXPECT_EQ(code("{{ ('a' * 100000).replace('', 'b' * 100000) }}", usual), kExhausted);
  EXPECT_EQ(code("{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}", usual), kExhausted);
}

TEST(ChatTemplateTest, DeepTemplatesAreRefused) {
  std::string brackets;
  std::string tags;
  std::string sum = "{{ 1";
  for (int i = 0; i < 100'000; ++i) {
    brackets += "(";
    tags += "{% if 1 %}";
    sum += " + 1";
  }
  const std::string closing(brackets.size(), ')');
  for (const std::string& source : {"{{ " + brackets + "1" + closing + " }}", tags, sum + " }}",
                                    "{{ " + std::string(100'000, '-') + "1 }}"}) {
    const auto chat = ChatTemplate::Parse(source);
    EXPECT_EQ(chat.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(absl::StrContains(chat.status().message(), "deeper than")) << chat.status();
  }
}

// The pieces, template text in [brackets].
std::string Pieces(absl::string_view source, const ChatInputs& inputs) {
  const auto chat = ChatTemplate::Parse(source);
  EXPECT_TRUE(chat.ok()) << chat.status();
  const auto pieces = chat->Render(inputs);
  EXPECT_TRUE(pieces.ok()) << pieces.status();
  std::string text;
  for (const TextPiece& piece : *pieces) {
    absl::StrAppend(&text, piece.origin == TextOrigin::kTemplate ? "[" : "", piece.text,
                    piece.origin == TextOrigin::kTemplate ? "]" : "");
  }
  return text;
}

TEST(ChatTemplateTest, PiecesKnowTheirOrigin) {
  ChatInputs inputs = OneMessage(" a<b>c ");
  inputs.bos_token = "<s>";
  inputs.template_kwargs = {{"extra", "x"}};
  const std::pair<std::string, std::string> cases[] = {
      {"{{ bos_token }}A{{ messages[0].content }}B", "[<s>A] a<b>c [B]"},
      {"{{ '<' + messages[0]['content'] | trim + '>' }}", "[<]a<b>c[>]"},
      {"{{ ('<' ~ messages[0].content ~ '>')[:4] }}", "[<] a<"},
      {"{{ ('<' ~ messages[0].content ~ '>').split('b')[1] }}", ">c [>]"},
      {"{{ ('<b' ~ messages[0].content).replace('b', 'B') }}", "[<B] a<[B]>c "},
      {"{{ messages[0].content | upper }}", " A<B>C "},
      {"{{ ['<', messages[0].role, '>'] | join('-') }}", "[<-]user[->]"},
      {"{{ messages[0] | tojson }}", "{\"role\": \"user\", \"content\": \" a<b>c \"}"},
      {"{{ {'k': 1} | tojson }}", "[{\"k\": 1}]"},
      {"{% for c in messages[0].content.strip() %}{{ c }}.{% endfor %}", "a[.]<[.]b[.]>[.]c[.]"},
      {"{% set x %}<{{ messages[0].content }}>{% endset %}{{ x }}", "[<] a<b>c [>]"},
      {"{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(messages[0].role) }}", "[<]user[>]"},
      {"{{ extra }}{{ messages | length }}", "x[1]"},
      {"{% for k in messages[0] %}{{ k }}{% endfor %}", "rolecontent"},
      {"{{ messages[0].content | default('none') }}{{ messages[0].x | default('none') }}",
       " a<b>c [none]"},
      {"{{ '<b>' in messages[0].content }}", "[True]"},
      {"{{ (messages[0].content ~ '<') | reverse }}", "[<] c>b<a "},
  };
  for (const auto& [source, expected] : cases) {
    EXPECT_EQ(Pieces(source, inputs), expected) << source;
  }
}

TEST(ChatTemplateTest, OneTemplateRendersManyTimes) {
  const auto chat = ChatTemplate::Parse(
      "{% set ns = namespace(n=0) %}{% for m in messages %}"
      "{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}");
  ASSERT_TRUE(chat.ok());
  const ChatTemplate copy = *chat;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(*copy.RenderText(OneMessage("x")), "1");
}

}  // namespace
}  // namespace tidepool::engine
