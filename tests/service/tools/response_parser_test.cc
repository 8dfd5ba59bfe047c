// How responses are separated into reasoning, content and calls. Each case is also parsed in all
// splits.
#include "service/tools/response_parser.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "service/tools/response_message.h"
#include "tests/service/tools/parsed_response.h"

namespace tidepool::service {
namespace {

constexpr char kTools[] = R"([
  {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"},
      "metric": {"type": "boolean"}, "unit": {"anyOf": [{"type": "string"}, {"type": "null"}]},
      "places": {"type": "array", "items": {"type": "object"}}, "any": {}}}}},
  {"type": "function", "function": {"name": "now"}}])";

ResponseFormat FormatWith(v1::ToolSyntax syntax) {
  return {.syntax = syntax, .tools = std::make_shared<ToolSchemas>(kTools)};
}

ResponseFormat Thinking(v1::ToolSyntax syntax, bool in_reasoning) {
  ResponseFormat format = FormatWith(syntax);
  format.reasoning.set_begin("<think>");
  format.reasoning.set_end("</think>");
  format.in_reasoning = in_reasoning;
  return format;
}

struct Case {
  const char* text;
  ParsedResponse expected;
};

void Check(const ResponseFormat& format, const std::vector<Case>& cases) {
  std::mt19937 random(1);
  for (const Case& item : cases) {
    EXPECT_EQ(ParseWhole(format, item.text), item.expected) << item.text;
    EXPECT_EQ(FindBadSplit(format, item.text, &random), "") << item.text;
  }
}

TEST(ResponseParserTest, Tags) {
  const std::string args = R"({"city": "Köln", "days": 2})";
  const std::string call =
      "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": " + args + "}\n</tool_call>";
  Check(FormatWith(v1::TOOL_CALL_TAGS),
        {{"Hello", {"", "Hello", {}}},
         {call.c_str(), {"", "", {{"get_weather", args}}}},
         {absl::StrCat("Look:\n", call, "\n", call, "\n").c_str(),
          {"", "Look:", {{"get_weather", args}, {"get_weather", args}}}},
         // text after a call is not lost
         {absl::StrCat(call, "\nDone.").c_str(), {"", "\nDone.", {{"get_weather", args}}}}});
}

// The members of a call may be in any order, and a call may have other members.
TEST(ResponseParserTest, TagsInOtherWords) {
  Check(
      FormatWith(v1::TOOL_CALL_TAGS),
      {{R"(<tool_call>{"arguments": {"a": 1}, "name": "now"}</tool_call>)",
        {"", "", {{"now", R"({"a": 1})"}}}},
       {R"(<tool_call>{"name":"now","parameters":{}}</tool_call>)", {"", "", {{"now", "{}"}}}},
       {R"(<tool_call>{"name":"now"}</tool_call>)", {"", "", {{"now", "{}"}}}},
       {R"(<tool_call>{"name":"now","arguments":null}</tool_call>)", {"", "", {{"now", "{}"}}}},
       {R"(<tool_call>{"name":"now","arguments":"{\"a\":\"\\u00e9\"}"}</tool_call>)",
        {"", "", {{"now", R"({"a":"\u00e9"})"}}}},
       {R"(<tool_call>{"id":"x1","name":"now","arguments":{"a":[{}]},"type":"function"}</tool_call>!)",
        {"", "!", {{"now", R"({"a":[{}]})"}}}},
       // without the end
       {R"(<tool_call>{"name":"now","arguments":{"a":1}})", {"", "", {{"now", R"({"a":1})"}}}},
       {R"(<tool_call>{"name":"now","arguments":{"a":1}</tool_call>)",
        {"", "", {{"now", R"({"a":1})"}}}}});
}

TEST(ResponseParserTest, MarkersInsideOfValuesAreText) {
  Check(
      FormatWith(v1::TOOL_CALL_TAGS),
      {{R"(<tool_call>{"name":"now","arguments":{"a":"</tool_call>}\"{<tool_call>"}}</tool_call>)",
        {"", "", {{"now", R"({"a":"</tool_call>}\"{<tool_call>"})"}}}}});
}

// Rule: bad syntax is content, and nothing is lost.
TEST(ResponseParserTest, TextWithoutACallIsContent) {
  const char* const texts[] = {"The tag <tool_call> begins a call.",
                               "<tool_call>",
                               "<tool_call>\n",
                               "<tool_call>not JSON</tool_call>",
                               "<tool_call>{\"name\": 5, \"arguments\": {}}</tool_call>",
                               "<tool_call>{\"name\": \"\", \"arguments\": {}}</tool_call>",
                               "<tool_call>{\"arguments\": {}}</tool_call>",
                               "<tool_call>{\"name\": \"now\", \"arguments\": [1]}</tool_call>",
                               "<tool_call>{\"name\": \"now\", \"argu",
                               "<tool_call>[]</tool_call>",
                               "a < b <tool <tool_cal",
                               "</tool_call> \n"};
  std::mt19937 random(2);
  for (const char* text : texts) {
    const ResponseFormat format = FormatWith(v1::TOOL_CALL_TAGS);
    EXPECT_EQ(ParseWhole(format, text), (ParsedResponse{"", text, {}})) << text;
    EXPECT_EQ(FindBadSplit(format, text, &random), "") << text;
  }
}

TEST(ResponseParserTest, ACallAfterABrokenOneIsFound) {
  Check(FormatWith(v1::TOOL_CALL_TAGS),
        {{R"(<tool_call><tool_call>{"name":"now","arguments":{}}</tool_call>)",
          {"", "<tool_call>", {{"now", "{}"}}}}});
}

// max_tokens can end a response anywhere. The arguments so far stay.
TEST(ResponseParserTest, ACutCallKeepsItsArguments) {
  Check(
      FormatWith(v1::TOOL_CALL_TAGS),
      {{R"(<tool_call>{"name":"now","arguments":{"a": [1, )", {"", "", {{"now", R"({"a": [1, )"}}}},
       {R"(<tool_call>{"name":"now","arguments":{"a":1}}</tool_)",
        {"", "", {{"now", R"({"a":1})"}}}},
       // a marker ends arguments that are not complete
       {R"(<tool_call>{"name":"now","arguments":{"a": [1</tool_call>x)",
        {"", "x", {{"now", R"({"a": [1)"}}}}});
  Check(FormatWith(v1::QWEN_XML), {{"<tool_call>\n<function=get_weather>\n<parameter=city>\nKö",
                                    {"", "", {{"get_weather", "{\"city\": \"Kö"}}}},
                                   {"<tool_call>\n<function=get_weather>\n<parameter=days>\n1",
                                    {"", "", {{"get_weather", "{\"days\": 1"}}}}});
}

// Without tools in the request, nothing is a call.
TEST(ResponseParserTest, WithoutToolsTheMarkersAreText) {
  ResponseFormat format = FormatWith(v1::TOOL_CALL_TAGS);
  format.tools = nullptr;
  const char* const text = R"(<tool_call>{"name":"now","arguments":{}}</tool_call>)";
  EXPECT_EQ(ParseWhole(format, text), (ParsedResponse{"", text, {}}));
}

TEST(ResponseParserTest, Reasoning) {
  const char* const call = R"(<tool_call>{"name":"now","arguments":{}}</tool_call>)";
  Check(Thinking(v1::TOOL_CALL_TAGS, false),
        {{"Hi", {"", "Hi", {}}},
         {"<think>\nWell.\n\nOk.\n</think>\n\nHi", {"Well.\n\nOk.", "Hi", {}}},
         {"\n<think>a</think>", {"a", "", {}}},
         {"<think>\n\n</think>\n\nHi", {"", "Hi", {}}},
         {"<think>a</think>\n<think>b</think>c", {"ab", "c", {}}},
         // a marker in the content is text
         {"Use <think>", {"", "Use <think>", {}}},
         {"Use </think>", {"", "Use </think>", {}}},
         {"<thi", {"", "<thi", {}}},
         // a call straight after the reasoning, and one without reasoning
         {absl::StrCat("<think>a</think>", call).c_str(), {"a", "", {{"now", "{}"}}}},
         {call, {"", "", {{"now", "{}"}}}},
         // the reasoning has no calls, and can be cut
         {absl::StrCat("<think>", call, "</th").c_str(), {absl::StrCat(call, "</th"), "", {}}},
         {"<think>", {"", "", {}}}});
  Check(Thinking(v1::TOOL_CALL_TAGS, true),
        {{"a</think>b", {"a", "b", {}}},
         {"</think>b", {"", "b", {}}},
         {"a", {"a", "", {}}},
         {"\n<think>\na\n</think>\nb", {"a", "b", {}}},
         {absl::StrCat("a</think>\n\n", call).c_str(), {"a", "", {{"now", "{}"}}}}});
}

TEST(ResponseParserTest, QwenXml) {
  Check(
      FormatWith(v1::QWEN_XML),
      {{"<tool_call>\n<function=get_weather>\n<parameter=city>\nKöln \"1\"\n</parameter>\n"
        "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
        {"", "", {{"get_weather", R"({"city": "Köln \"1\"", "days": 3})"}}}},
       {"<tool_call>\n<function=now>\n</function>\n</tool_call>", {"", "", {{"now", "{}"}}}},
       {"Ok.\n<tool_call><function=now></function></tool_call>\n<tool_call><function=now>"
        "</function></tool_call>",
        {"", "Ok.", {{"now", "{}"}, {"now", "{}"}}}},
       // without <tool_call>, and without </tool_call>
       {"<function=now>\n</function>", {"", "", {{"now", "{}"}}}},
       // only one line break belongs to the markers
       {"<tool_call>\n<function=get_weather>\n<parameter=city>\n\n a\n\n</parameter>\n</function>\n"
        "</tool_call>",
        {"", "", {{"get_weather", R"({"city": "\n a\n"})"}}}},
       {"<tool_call>\n<function=get_weather>\n<parameter=city>\n\n</parameter>\n</function>\n"
        "</tool_call>",
        {"", "", {{"get_weather", R"({"city": ""})"}}}}});
}

TEST(ResponseParserTest, QwenXmlEndMarkersInValues) {
  Check(FormatWith(v1::QWEN_XML),
        {{"<tool_call>\n<function=get_weather>\n<parameter=city>\na</parameter>b</function>\n"
          "</parameter>\n</function>\n</tool_call>",
          {"", "", {{"get_weather", R"({"city": "a</parameter>b</function>"})"}}}},
         {"<tool_call>\n<function=get_weather>\n<parameter=city>\na</parameter>\n</parameter>\n"
          "</function>\n</tool_call>",
          {"", "", {{"get_weather", R"({"city": "a</parameter>"})"}}}},
         // a doubled end marker is a mistake of the model
         {"<tool_call>\n<function=get_weather>\n<parameter=days>\n1\n</parameter>\n</parameter>\n"
          "</function>\n</tool_call>",
          {"", "", {{"get_weather", R"({"days": 1})"}}}}});
}

TEST(ResponseParserTest, QwenXmlTypes) {
  const auto args = [](const std::string& key, const std::string& value) {
    return ParseWhole(FormatWith(v1::QWEN_XML),
                      absl::StrCat("<tool_call>\n<function=get_weather>\n<parameter=", key, ">\n",
                                   value, "\n</parameter>\n</function>\n</tool_call>"))
        .calls[0]
        .arguments;
  };
  EXPECT_EQ(args("metric", "True"), R"({"metric": true})");
  EXPECT_EQ(args("metric", "false"), R"({"metric": false})");
  EXPECT_EQ(args("metric", "maybe"), R"({"metric": "maybe"})");
  EXPECT_EQ(args("days", "1.5"), R"({"days": "1.5"})");
  EXPECT_EQ(args("days", "5.0"), R"({"days": 5.0})");
  EXPECT_EQ(args("city", "5"), R"({"city": "5"})");
  EXPECT_EQ(args("unit", "None"), R"({"unit": null})");
  EXPECT_EQ(args("unit", "null"), R"({"unit": null})");
  EXPECT_EQ(args("unit", "{\"a\": 1}"), R"({"unit": "{\"a\": 1}"})");
  EXPECT_EQ(args("places", "[{\"a\": [1, \"x\"]}]"), R"({"places": [{"a": [1, "x"]}]})");
  EXPECT_EQ(args("places", "[{'a': True, 'b': 'it\\'s'}]"),
            R"({"places": [{"a": true, "b": "it's"}]})");
  EXPECT_EQ(args("places", "[{"), R"({"places": "[{"})");
  EXPECT_EQ(args("any", "5"), R"({"any": "5"})");
  EXPECT_EQ(args("unknown", "5"), R"({"unknown": "5"})");
}

TEST(ResponseParserTest, GlmXml) {
  Check(FormatWith(v1::GLM_XML),
        {{"\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Köln</arg_value>\n"
          "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>",
          {"", "", {{"get_weather", R"({"city": "Köln", "days": 3})"}}}},
         {"<tool_call>now</tool_call>", {"", "", {{"now", "{}"}}}},
         {"<tool_call>now\n</tool_call>\n<tool_call>now\n</tool_call>",
          {"", "", {{"now", "{}"}, {"now", "{}"}}}},
         {"<tool_call>get_weather<arg_key>city</arg_key><arg_value>\n</arg_value>\n</arg_value>"
          "</tool_call>",
          {"", "", {{"get_weather", R"({"city": "\n</arg_value>\n"})"}}}},
         {"<tool_call> is a tag", {"", "<tool_call> is a tag", {}}}});
}

TEST(ResponseParserTest, Llama3) {
  Check(
      FormatWith(v1::LLAMA3_JSON),
      {{R"({"name": "now", "parameters": {"a": 1}})", {"", "", {{"now", R"({"a": 1})"}}}},
       {R"(<|python_tag|>{"name": "now", "parameters": {}})", {"", "", {{"now", "{}"}}}},
       {R"({"type": "function", "function": "now", "parameters": {}})", {"", "", {{"now", "{}"}}}},
       {R"({"name": "now", "parameters": {}}; {"name": "get_weather", "parameters": {}})",
        {"", "", {{"now", "{}"}, {"get_weather", "{}"}}}},
       // JSON that is not a call of a given tool
       {R"({"name": "Bob", "parameters": {}})", {"", R"({"name": "Bob", "parameters": {}})", {}}},
       {R"({"name": "now", "parameters": {}} Done.)", {"", " Done.", {{"now", "{}"}}}},
       {R"(Well: {"name": "now", "parameters": {}})",
        {"", R"(Well: {"name": "now", "parameters": {}})", {}}},
       {" \n", {"", " \n", {}}}});
}

TEST(ResponseParserTest, Mistral) {
  Check(
      FormatWith(v1::MISTRAL_LIST),
      {{R"([TOOL_CALLS] [{"name": "now", "arguments": {}}, {"name": "x", "arguments": {"a": "]"}, "id": "123456789"}])",
        {"", "", {{"now", "{}"}, {"x", R"({"a": "]"})"}}}},
       {R"([{"name": "now", "arguments": {}}])", {"", "", {{"now", "{}"}}}},
       {R"([{"name": "Bob", "arguments": {}}])", {"", R"([{"name": "Bob", "arguments": {}}])", {}}},
       {R"(Ok.[TOOL_CALLS][{"name": "now", "arguments": {}}])", {"", "Ok.", {{"now", "{}"}}}},
       {"[TOOL_CALLS][]", {"", "[TOOL_CALLS][]", {}}},
       {"[1, 2]", {"", "[1, 2]", {}}}});
  Check(FormatWith(v1::MISTRAL_ARGS),
        {{R"([TOOL_CALLS]now[ARGS]{"a": "[TOOL_CALLS]"}[TOOL_CALLS]now[ARGS]{})",
          {"", "", {{"now", R"({"a": "[TOOL_CALLS]"})"}, {"now", "{}"}}}},
         {R"(Ok.[TOOL_CALLS]now[CALL_ID]abcdefghi[ARGS]{"a": 1})",
          {"", "Ok.", {{"now", R"({"a": 1})"}}}},
         {R"([TOOL_CALLS]now{"a": 1})", {"", "", {{"now", R"({"a": 1})"}}}},
         {"[TOOL_CALLS] is a marker", {"", "[TOOL_CALLS] is a marker", {}}}});
}

TEST(ResponseParserTest, Pythonic) {
  Check(
      FormatWith(v1::LLAMA_PYTHONIC),
      {{R"([get_weather(city='Köln', days=2, metric=True, unit=None), now()])",
        {"",
         "",
         {{"get_weather", R"({"city": "Köln", "days": 2, "metric": true, "unit": null})"},
          {"now", "{}"}}}},
       {R"(<|python_start|>[get_weather(places=[{'a': "it's", 'b': (1, -2.5)}])]<|python_end|>)",
        {"", "", {{"get_weather", R"({"places": [{"a": "it's", "b": [1, -2.5]}]})"}}}},
       {"[other(a=1)]", {"", "[other(a=1)]", {}}},
       {"[1] says now()", {"", "[1] says now()", {}}},
       {"now()", {"", "now()", {}}},
       // what is not a literal ends the call
       {"[get_weather(city='a', days=f(x))]", {"", "f(x))]", {{"get_weather", R"({"city": "a")"}}}},
       {"[get_weather(city='a', days=1", {"", "", {{"get_weather", R"({"city": "a"1)"}}}}});
}

TEST(ResponseParserTest, DeepSeek) {
  Check(
      FormatWith(v1::DEEPSEEK_V3),
      {{"Ok.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{\"a\": "
        "\"```\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```"
        "json\n"
        "{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        {"", "Ok.", {{"now", R"({"a": "```"})"}, {"now", "{}"}}}}});
  Check(
      FormatWith(v1::DEEPSEEK_V31),
      {{"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜>"
        "<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>!",
        {"", "!", {{"now", R"({"a": 1})"}, {"now", "{}"}}}},
       {"<｜tool▁calls▁begin｜> and", {"", "<｜tool▁calls▁begin｜> and", {}}}});
  Check(FormatWith(v1::DEEPSEEK_DSML),
        {{"<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter "
          "name=\"city\" string=\"true\">5</｜DSML｜parameter>\n<｜DSML｜parameter name=\"x\" "
          "string=\"false\">[1, {}]</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke "
          "name=\"now\">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
          {"", "", {{"get_weather", R"({"city": "5", "x": [1, {}]})"}, {"now", "{}"}}}}});
}

TEST(ResponseParserTest, Granite) {
  Check(
      FormatWith(v1::GRANITE),
      {{R"(<|tool_call|>[{"name": "now", "arguments": {}}, {"name": "x", "arguments": {"a": 1}}])",
        {"", "", {{"now", "{}"}, {"x", R"({"a": 1})"}}}},
       {R"(<tool_call>[{"name": "now", "arguments": {}}])", {"", "", {{"now", "{}"}}}}});
}

TEST(ResponseParserTest, Harmony) {
  Check(
      FormatWith(v1::HARMONY),
      {{"<|channel|>analysis<|message|>Well.<|end|><|start|>assistant<|channel|>final<|message|>Hi",
        {"Well.", "Hi", {}}},
       {"<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary "
        "to=functions.now <|constrain|>json<|message|>{\"a\": \"<x>\"}<|call|>",
        {"a", "", {{"now", R"({"a": "<x>"})"}}}},
       {" to=functions.now<|channel|>commentary json<|message|>{}<|call|>",
        {"", "", {{"now", "{}"}}}},
       {"<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary "
        "to=functions.now<|message|>",
        {"", "I look.", {{"now", "{}"}}}},
       // headers that are not as they should be
       {"Hi", {"", "Hi", {}}},
       {"to=5", {"", "to=5", {}}},
       {"<|message|>Hi", {"", "Hi", {}}},
       {"<|channel|>final<|end|>Hi", {"", "<|channel|>finalHi", {}}},
       {"<|channel|>analysis<|message|>a<|channel|>final<|message|>b", {"a", "b", {}}},
       {"<|channel|>analysis<|message|>a<|end|>b", {"a", "b", {}}},
       {"<|channel|>commentary to=functions.now<|message|>print(1)<|call|>", {"", "print(1)", {}}},
       {"<|channel|>ana", {"", "", {}}},
       {"<|chan", {"", "<|chan", {}}}});
}

// The template of gpt-oss rejects contents with markers.
TEST(ResponseParserTest, HarmonyResponsesBecomeMessages) {
  v1::ChatMessage message;
  message.set_content(
      "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
      "to=functions.now <|constrain|>json<|message|>{\"a\": 1}");
  SeparateResponse(v1::TOOL_CALL_TAGS, &message);
  EXPECT_EQ(message.content().substr(0, 2), "<|");
  SeparateResponse(v1::HARMONY, &message);
  EXPECT_EQ(message.content(), "");
  EXPECT_EQ(message.reasoning_content(), "Hm.");
  EXPECT_EQ(message.tool_calls_json(),
            R"([{"type":"function","function":{"name":"now","arguments":{"a":1}}}])");
}

TEST(ResponseParserTest, HarmonyInReasoning) {
  ResponseFormat format = FormatWith(v1::HARMONY);
  format.in_reasoning = true;
  Check(format, {{"a<|end|><|start|>assistant<|channel|>final<|message|>b", {"a", "b", {}}}});
}

// The arguments stream: what is certain is passed on at once.
TEST(ResponseParserTest, ArgumentsStream) {
  ResponseParser parser(FormatWith(v1::QWEN_XML));
  OutputPieces pieces;
  const auto fed = [&](absl::string_view text) {
    pieces.clear();
    parser.Feed(text, &pieces);
    std::string all;
    for (const OutputPiece& piece : pieces) absl::StrAppend(&all, piece.text, "|");
    return all;
  };
  EXPECT_EQ(fed("<tool_call>\n<function=get_weather>\n"), "");
  EXPECT_EQ(fed("<parameter=city>\n"), "get_weather|{\"city\": \"|");
  EXPECT_EQ(fed("K"), "K|");
  EXPECT_EQ(fed("öln\n"), "öln|");
  EXPECT_EQ(fed("<"), "");
  EXPECT_EQ(fed("b>\n</param"), "\\n<b>|");
  EXPECT_EQ(fed("eter>\n<parameter=days>\n1"), "\", \"days\": |");
  EXPECT_EQ(fed("2\n</parameter>\n</function>"), "12}|");
  EXPECT_EQ(fed("</tool_call>"), "");
}

}  // namespace
}  // namespace tidepool::service
