#include "engine/chat_template/chat_template.h"

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

// Returns the rendered text. If parsing or rendering fails, returns the status as text, which no
// template here produces.
std::string RenderSource(absl::string_view source, const ChatInputs& inputs,
                         const ChatTemplateLimits& limits = ChatTemplateLimits()) {
  const auto chat = ChatTemplate::Parse(source);
  if (!chat.ok()) return chat.status().ToString();
  const auto text = chat->RenderText(inputs, limits);
  return text.ok() ? *text : text.status().ToString();
}

TEST(ChatTemplateTest, TemplatesRenderAsTransformersDoes) {
  const Json golden = ReadGolden("chat_golden.json");
  ASSERT_GE(golden["cases"].size(), 700u);
  int texts = 0;
  for (const Json& item : golden["cases"]) {
    const auto name = item["template"].get<std::string>();
    const auto chat = ChatTemplate::Parse(ReadTemplate(name));
    ASSERT_TRUE(chat.ok()) << name << ": " << chat.status();
    const Json& given = golden["conversations"][item["conversation"].get<size_t>()];
    ChatInputs inputs;
    inputs.messages = given["messages"];
    inputs.tools = given["tools"];
    inputs.template_kwargs = given["template_kwargs"];
    inputs.add_generation_prompt = given["add_generation_prompt"].get<bool>();
    inputs.bos_token = "<s>";
    inputs.eos_token = "</s>";
    const auto text = chat->RenderText(inputs);
    if (item["text"].is_null()) {
      EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument) << name << " " << given;
      EXPECT_TRUE(absl::StartsWith(text.status().message(), "chat template, line "))
          << text.status();
    } else {
      ++texts;
      ASSERT_TRUE(text.ok()) << name << " " << given << " " << text.status();
      EXPECT_EQ(*text, item["text"].get<std::string>()) << name << " " << given;
    }
  }
  EXPECT_GE(texts, 450);
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
      {"{% extends 'x' %}", "UNIMPLEMENTED: chat template, line 1: the tag 'extends'"},
      {"{% import 'x' as y %}", "the tag 'import' is not supported"},
      {"{% block b %}{% endblock %}", "the tag 'block' is not supported"},
      {"a\n{{ messages | wordwrap }}", "line 2: the filter 'wordwrap' is not supported"},
      {"{{ messages | random }}", "the filter 'random' is not supported, because equal messages"},
      {"{{ messages is nope }}", "the test 'nope' is not supported"},
      {"{{ 'a'.encode() }}", "the method 'encode' of a value of type str"},
      {"{{ messages.strip() }}", "INVALID_ARGUMENT: chat template, line 1: there is no method "},
      {"{{ messages.append(1) }}", "the method 'append' would modify a list"},
      {"{{ '%d' % 'x' }}", "a value of type str cannot be formatted as 'd'"},
      {"{{ '{x}'.format(y=1) }}", "format has no argument 'x'"},
      {"{{ 'a' | tojson(compact=1) }}", "tojson has no argument 'compact'"},
      {"{{ f(**x, y) }}", "arguments must be in this order"},
      {"{{ {[1]: 2} }}", "a value of type list cannot be a dict's key"},
      {"{% macro m(a) %}{% endmacro %}{{ m(b=1) }}", "the macro 'm' takes no argument 'b'"},
      {"{% for x in messages %}{{ loop(x) }}{% endfor %}", "must be declared 'recursive'"},
      {"x\n{{ 'a", "INVALID_ARGUMENT: chat template, line 2: a string has no closing quote"},
      {"{{ 'a'", "line 1: a tag '{{' is not closed"},
      {"{% if x %}\n", "a block has no {% endif %}"},
      {"{% endif %}", "the tag 'endif' is not allowed here"},
      {"{% nonesuch %}", "the tag 'nonesuch' is not allowed here"},
      {"{% break %}", "break outside of a loop"},
      {"{# x", "a comment '{#' has no '#}'"},
      {"{% raw %}", "no '{% endraw %}'"},
      {"{{ 1 + }}", "expected an expression, found '}}'"},
      {"{{ a b }}", "expected '}}', found 'b'"},
      {"{{ 1 $ 2 }}", "unexpected character '$'"},
      {"{{ (1 }}", "'}' does not match an open bracket"},
      {"{{ (1 2) }}", "expected ')', found '2'"},
      {"{{ 99999999999999999999 }}", "is too large"},
      {"{{ 9223372036854775807 + 1 }}", "does not fit in 64 bits"},
      {"{{ 9223372036854775807 | round(-1) }}", "rounded to 10^1 does not fit in 64 bits"},
      {"{{ 9223372036854775807 | round(-19) }}", "rounded to 10^19 does not fit in 64 bits"},
      {"{{ 1 | round(-9223372036854775807 - 1) }}", "precision must be -30 to 30"},
      {"{{ foo.bar }}", "line 1: 'foo' is undefined"},
      {"{{ messages[0].foo.bar }}", "has no attribute 'foo'"},
      {"\n{{ raise_exception('no such role') }}", "line 2: no such role"},
      {"{{ raise_exception('a\\nb\\x01c') }}", "line 1: a b c"},
      {"{{ 'x' | map('no\\nfilter') | list }}", "the filter 'no filter' is not supported"},
      {"{{ raise_exception('x' * 9999) }}", "xxx..."},
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
  inputs.now = absl::FromCivil(absl::CivilSecond(2026, 2, 3, 4, 5, 6), absl::UTCTimeZone()) +
               absl::Microseconds(78);
  EXPECT_EQ(RenderSource(source, inputs), "03 Feb 2026");
  EXPECT_EQ(RenderSource("{{ strftime_now('%Y-%m-%dT%H:%M:%S.%f%z %A %-d %%Y %j') }}", inputs),
            "2026-02-03T04:05:06.000078 Tuesday 3 %Y 034");
  EXPECT_EQ(RenderSource("[{{ strftime_now('') }}{{ strftime_now('%Z') }}]", inputs), "[]");
}

// Returns the pieces of the rendering, with template text in [brackets].
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
      {"{{ '%s|%5s' % (messages[0].role, '<') }}", "user[|    <]"},
      {"{{ '<{}>{:>6}'.format(messages[0].role, messages[0].role) }}", "[<]user[>  ]user"},
      {"{{ '<%(role)s>' % messages[0] }}", "[<]user[>]"},
      {"{{ messages[0].role | indent(2, true) }}", "[  ]user"},
      {"{{ messages[0].role.center(8, '*') }}", "[**]user[**]"},
      {"{{ ('<' ~ messages[0].role ~ '>').partition('user')[1] }}", "user"},
      {"{{ (messages[0].role ~ '<') | title }}", "User[<]"},
      {"{{ (messages[0].role ~ '<') | truncate(3, true, '') | e }}", "user[&lt;]"},
      {"{{ [messages[0].role, '<'] }}", "[[]'user'[, '<']]"},
      {"{{ messages[0] }}", "[{]'role'[: ]'user'[, ]'content'[: ]' a<b>c '[}]"},
      {"{{ messages[0].role | urlencode }}", "user"},
      {"{{ messages | map(attribute='role') | join('<') }}", "user"},
      {"{% filter upper %}<{{ messages[0].role }}{% endfilter %}", "[<]USER"},
      {"{% macro m() %}<{{ caller() }}{% endmacro %}{% call m() %}{{ extra }}{% endcall %}",
       "[<]x"},
      {"{% for x in messages recursive %}{{ x.role if loop.depth == 1 else x }}"
       "{{ loop(x) if loop.depth == 1 }}{% endfor %}",
       "userrolecontent"},
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
