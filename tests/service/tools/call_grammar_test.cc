#include "service/tools/call_grammar.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/matcher.h"
#include "gtest/gtest.h"

namespace tidepool::service {
namespace {

using engine::grammar::Expr;
using engine::grammar::Grammar;
using engine::grammar::GrammarIr;
using engine::grammar::Matcher;
using engine::grammar::ResponseTexts;

constexpr char kTools[] = R"([
  {"type": "function", "function": {"name": "weather", "parameters": {"type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
    "required": ["city"], "additionalProperties": false}}},
  {"type": "function", "function": {"name": "now"}}])";

struct Choice {
  v1::ToolChoice::Mode mode = v1::ToolChoice::REQUIRED;
  std::vector<std::string> names = {};
  bool parallel = true;
};

absl::StatusOr<CallRules> Rules(const std::string& tools, const Choice& choice) {
  v1::ToolChoice proto;
  proto.set_mode(choice.mode);
  for (const std::string& name : choice.names) proto.add_names(name);
  return RulesOf(tools, proto, choice.parallel);
}

absl::StatusOr<std::shared_ptr<const Grammar>> Compile(v1::ToolSyntax syntax,
                                                       const std::string& tools,
                                                       const Choice& choice) {
  absl::StatusOr<CallRules> rules = Rules(tools, choice);
  if (!rules.ok()) return rules.status();
  const ResponseTexts texts(nullptr, {});
  GrammarIr ir;
  CallGrammar calls(*FormatOf(syntax), *rules, &texts, &ir);
  const absl::StatusOr<Expr> response = calls.Emit();
  if (!response.ok()) return response.status();
  ir.set_start(*response);
  const absl::Status finished = ir.Finish();
  if (absl::Status status = calls.CheckArguments(); !status.ok()) return status;
  if (!finished.ok()) return finished;
  return std::make_shared<const Grammar>(std::move(ir));
}

bool Accepts(const std::shared_ptr<const Grammar>& grammar, const std::string& text) {
  Matcher matcher(grammar, nullptr);
  return matcher.AcceptText(text) == text.size() && matcher.accepts();
}

std::string ErrorOf(const std::string& tools, const Choice& choice,
                    v1::ToolSyntax syntax = v1::TOOL_CALL_TAGS) {
  const auto grammar = Compile(syntax, tools, choice);
  EXPECT_EQ(grammar.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(grammar.status().message());
}

// How a family's template writes one call and two calls of kTools.
struct Family {
  v1::ToolSyntax syntax;
  std::string one, two;
};

std::vector<Family> Families() {
  const std::string tag =
      "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\", \"days\": 2}}\n"
      "</tool_call>";
  const std::string now = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  const std::string listed = R"({"name": "weather", "arguments": {"city": "Paris", "days": 2}})";
  const std::string now_listed = R"({"name": "now", "arguments": {}})";
  const std::string xml =
      "<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n"
      "2\n</parameter>\n</function>\n</tool_call>";
  const std::string glm =
      "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"
      "<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>";
  const std::string v3 =
      "<｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n"
      "{\"city\": \"Paris\", \"days\": 2}\n```<｜tool▁call▁end｜>";
  const std::string v31 =
      "<｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": \"Paris\", \"days\": 2}"
      "<｜tool▁call▁end｜>";
  const std::string dsml =
      "<｜DSML｜invoke name=\"weather\">\n<｜DSML｜parameter name=\"city\" string=\"true\">Paris"
      "</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" string=\"false\">2"
      "</｜DSML｜parameter>\n</｜DSML｜invoke>";
  const auto within = [](const std::string& begin, const std::string& end, const std::string& call,
                         const std::string& separator) {
    return std::pair(begin + call + end, begin + call + separator + call + end);
  };
  const auto family = [](v1::ToolSyntax syntax, std::pair<std::string, std::string> texts) {
    return Family{syntax, texts.first, texts.second};
  };
  const std::string llama = absl::StrReplaceAll(listed, {{"arguments", "parameters"}});
  return {
      {v1::TOOL_CALL_TAGS, tag, tag + "\n" + now},
      {v1::GENERIC_TOOLS, tag, tag + "\n" + now},
      {v1::LLAMA3_JSON, llama, llama + "; " + llama},
      {v1::MISTRAL_LIST, "[TOOL_CALLS][" + listed + "]",
       "[TOOL_CALLS][" + listed + ", " + now_listed + "]"},
      {v1::MISTRAL_ARGS, "[TOOL_CALLS]weather[ARGS]{\"city\": \"Paris\", \"days\": 2}",
       "[TOOL_CALLS]weather[ARGS]{\"city\": \"Paris\"}[TOOL_CALLS]now[ARGS]{}"},
      {v1::QWEN_XML, xml, xml + "\n" + xml},
      {v1::GLM_XML, glm, glm + "\n" + glm},
      family(v1::DEEPSEEK_V3, within("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", v3, "\n")),
      family(v1::DEEPSEEK_V31, within("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", v31, "")),
      family(v1::DEEPSEEK_DSML,
             within("<｜DSML｜function_calls>\n", "\n</｜DSML｜function_calls>", dsml, "\n")),
      {v1::LLAMA_PYTHONIC, R"([weather(city="Paris", days=2)])",
       R"([weather(city="Paris", days=2), now()])"},
      {v1::GRANITE, "<|tool_call|>[" + listed + "]",
       "<|tool_call|>[" + listed + ", " + now_listed + "]"},
      {v1::HARMONY,
       "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>"
       "{\"city\": \"Paris\", \"days\": 2}<|call|>",
       ""},
  };
}

std::string Replaced(const std::string& text, const std::string& from, const std::string& to) {
  return absl::StrReplaceAll(text, {{from, to}});
}

TEST(CallGrammarTest, ARequiredCallIsWrittenAsTheTemplateWritesIt) {
  for (const Family& family : Families()) {
    SCOPED_TRACE(v1::ToolSyntax_Name(family.syntax));
    const auto grammar = Compile(family.syntax, kTools, {});
    ASSERT_TRUE(grammar.ok()) << grammar.status();
    EXPECT_TRUE(Accepts(*grammar, family.one)) << family.one;
    EXPECT_TRUE(family.two.empty() || Accepts(*grammar, family.two)) << family.two;
    EXPECT_FALSE(Accepts(*grammar, ""));
    EXPECT_FALSE(Accepts(*grammar, "Hello"));
    EXPECT_FALSE(Accepts(*grammar, "Hello " + family.one));
    EXPECT_FALSE(Accepts(*grammar, Replaced(family.one, "weather", "weathers")));
    EXPECT_FALSE(Accepts(*grammar, Replaced(family.one, "weather", "wind")));
    EXPECT_FALSE(Accepts(*grammar, Replaced(family.one, "city", "town")));
    EXPECT_FALSE(Accepts(*grammar, Replaced(family.one, "2", "0")));
    EXPECT_FALSE(Accepts(*grammar, Replaced(family.one, "2", "two")));
    EXPECT_TRUE(Accepts(*grammar, Replaced(family.one, "Paris", "São Paulo")));
  }
}

TEST(CallGrammarTest, OnlyNamedToolsMayBeCalled) {
  for (const Family& family : Families()) {
    SCOPED_TRACE(v1::ToolSyntax_Name(family.syntax));
    const auto weather = Compile(family.syntax, kTools, {.names = {"weather"}});
    const auto now = Compile(family.syntax, kTools, {.names = {"now"}});
    ASSERT_TRUE(weather.ok() && now.ok());
    EXPECT_TRUE(Accepts(*weather, family.one));
    EXPECT_FALSE(Accepts(*now, family.one));
  }
}

TEST(CallGrammarTest, OneCallIfCallsMustNotBeParallel) {
  for (const Family& family : Families()) {
    SCOPED_TRACE(v1::ToolSyntax_Name(family.syntax));
    const auto grammar = Compile(family.syntax, kTools, {.parallel = false});
    ASSERT_TRUE(grammar.ok());
    EXPECT_TRUE(Accepts(*grammar, family.one));
    EXPECT_TRUE(family.two.empty() || !Accepts(*grammar, family.two));
  }
}

TEST(CallGrammarTest, FreeTextMayPrecedeCallsThatAreNotRequired) {
  for (const Family& family : Families()) {
    SCOPED_TRACE(v1::ToolSyntax_Name(family.syntax));
    const Choice choice = {.mode = v1::ToolChoice::AUTO, .names = {"weather"}};
    const auto grammar = Compile(family.syntax, kTools, choice);
    ASSERT_TRUE(grammar.ok()) << grammar.status();
    EXPECT_TRUE(Accepts(*grammar, family.one)) << family.one;
    EXPECT_FALSE(Accepts(*grammar, Replaced(family.one, "weather", "now")));
    EXPECT_FALSE(Accepts(*grammar, Replaced(family.one, "2", "0")));
    if (family.syntax == v1::HARMONY) {
      EXPECT_TRUE(Accepts(*grammar, "<|channel|>final<|message|>Hello"));
      EXPECT_TRUE(Accepts(
          *grammar, "<|channel|>commentary<|message|>Hm<|end|><|start|>assistant" + family.one));
      continue;
    }
    EXPECT_TRUE(Accepts(*grammar, ""));
    EXPECT_TRUE(Accepts(*grammar, "Hello <tool"));
    if (FormatOf(family.syntax)->trigger.empty()) continue;  // calls are only at the beginning
    EXPECT_TRUE(Accepts(*grammar, "Hello\n" + family.one));
    EXPECT_FALSE(Accepts(*grammar, "Hello\n" + Replaced(family.one, "2", "0")));
  }
}

TEST(CallGrammarTest, StrictToolsAreExactAndOthersAreNot) {
  const std::string tools =
      Replaced(kTools, R"("name": "weather")", R"("name": "weather", "strict": true)");
  const Choice automatic = {.mode = v1::ToolChoice::AUTO};
  EXPECT_FALSE(Rules(kTools, automatic)->restricts());
  EXPECT_TRUE(Rules(tools, automatic)->restricts());
  for (const Family& family : Families()) {
    SCOPED_TRACE(v1::ToolSyntax_Name(family.syntax));
    const auto grammar = Compile(family.syntax, tools, automatic);
    ASSERT_TRUE(grammar.ok()) << grammar.status();
    EXPECT_TRUE(Accepts(*grammar, family.one));
    EXPECT_FALSE(Accepts(*grammar, Replaced(family.one, "2", "0")));
    EXPECT_TRUE(Accepts(*grammar, Replaced(family.one, "weather", "now")));
    EXPECT_FALSE(Accepts(*grammar, Replaced(family.one, "weather", "wind")));
  }
}

std::string Tool(const std::string& parameters) {
  return absl::StrCat(R"([{"type": "function", "function": {"name": "f", "parameters": )",
                      parameters, "}}]");
}

TEST(CallGrammarTest, TextParametersCannotEndEarly) {
  const std::string tools = Tool(R"({"type": "object", "properties": {
      "a": {"type": "string", "pattern": "^[a-z</>]*$"},
      "b": {"type": ["string", "null"]},
      "c": {"enum": ["x", "y"]},
      "d": {"type": "array", "items": {"type": "string"}}}})");
  const auto grammar = Compile(v1::QWEN_XML, tools, {});
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  const auto call = [](const std::string& name, const std::string& value) {
    return absl::StrCat("<tool_call>\n<function=f>\n<parameter=", name, ">\n", value,
                        "\n</parameter>\n</function>\n</tool_call>");
  };
  EXPECT_TRUE(Accepts(*grammar, "<tool_call>\n<function=f>\n</function>\n</tool_call>"));
  EXPECT_TRUE(Accepts(*grammar, call("a", "a</b>")));
  EXPECT_FALSE(Accepts(*grammar, call("a", "a</parameter>")));
  EXPECT_FALSE(Accepts(*grammar, call("a", "A")));
  EXPECT_TRUE(Accepts(*grammar, call("b", "null")));
  EXPECT_TRUE(Accepts(*grammar, call("b", "nullable \"text\"\nof two lines")));
  EXPECT_FALSE(Accepts(*grammar, call("b", "True ")));
  EXPECT_FALSE(Accepts(*grammar, call("b", "12")));
  EXPECT_TRUE(Accepts(*grammar, call("c", "x")));
  EXPECT_FALSE(Accepts(*grammar, call("c", "\"x\"")));
  EXPECT_TRUE(Accepts(*grammar, call("d", R"(["x", "y"])")));
  EXPECT_FALSE(Accepts(*grammar, call("d", "[x]")));
  EXPECT_FALSE(Accepts(*grammar, call("e", "x")));
}

TEST(CallGrammarTest, KeywordArgumentsHaveCommasBetweenThem) {
  const auto grammar = Compile(v1::LLAMA_PYTHONIC, Tool(R"({"type": "object", "properties": {
      "a": {"type": "boolean"}, "b": {"type": "integer"}, "c": {"type": "null"}},
      "required": ["b"]})"),
                               {});
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  for (const char* good : {"b=1", "a=true, b=1", "b=1, c=null", "a=false, b=1, c=null"}) {
    EXPECT_TRUE(Accepts(*grammar, absl::StrCat("[f(", good, ")]"))) << good;
  }
  for (const char* bad : {"", "a=true", "a=true b=1", ", b=1", "b=1, ", "b=1, a=true"}) {
    EXPECT_FALSE(Accepts(*grammar, absl::StrCat("[f(", bad, ")]"))) << bad;
  }
}

TEST(CallGrammarTest, ArgumentsAreObjects) {
  for (const char* schema : {"{}", "true", R"({"description": "anything"})"}) {
    const auto grammar = Compile(v1::MISTRAL_ARGS, Tool(schema), {});
    ASSERT_TRUE(grammar.ok()) << grammar.status();
    EXPECT_TRUE(Accepts(*grammar, R"([TOOL_CALLS]f[ARGS]{"a": [1]})"));
    EXPECT_FALSE(Accepts(*grammar, "[TOOL_CALLS]f[ARGS][1]"));
  }
  const auto grammar =
      Compile(v1::MISTRAL_ARGS,
              Tool(R"({"$defs": {"s": {"enum": [1]}}, "properties": {"a": {"$ref": "#/$defs/s"}},
               "required": ["a"], "additionalProperties": false})"),
              {});
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  EXPECT_TRUE(Accepts(*grammar, R"([TOOL_CALLS]f[ARGS]{"a": 1})"));
  EXPECT_FALSE(Accepts(*grammar, R"([TOOL_CALLS]f[ARGS]{"a": 2})"));
  EXPECT_FALSE(Accepts(*grammar, "[TOOL_CALLS]f[ARGS]1"));
}

TEST(CallGrammarTest, ErrorsNameTheTool) {
  const auto has = [](const std::string& text, const char* part) {
    EXPECT_TRUE(absl::StrContains(text, part)) << text;
  };
  const std::string faulty =
      ErrorOf(Tool(R"({"properties": {"a": {"type": "string", "pattern": "(?<=a)b"}}})"), {});
  has(faulty, "tools[0].function.parameters: JSON schema, at \"/properties/a\"");
  has(faulty, "\"pattern\"");
  has(ErrorOf(Tool(R"({"type": "string"})"), {}), "tools[0].function.parameters: no JSON object");
  has(ErrorOf(Tool(R"({"minProperties": 1})"), {}, v1::QWEN_XML), "keyword \"minProperties\"");
  has(ErrorOf(Tool(R"({"required": ["a"]})"), {}, v1::QWEN_XML), "keyword \"required\"");
  has(ErrorOf(kTools, {.names = {"wind"}}), "wind");
  has(ErrorOf("[]", {}), "no tools");
  has(ErrorOf("", {}), "no tools");
  has(ErrorOf(R"([{"type": "function", "function": {"name": "a\"b"}}])", {}),
      "tools[0].function.name");
  has(ErrorOf(R"([{"function": {"name": "a"}}, {"function": {"name": "a"}}])", {}),
      "tools[1].function.name");
  has(ErrorOf(R"([{"type": "web_search"}])", {}), "tools[0].function.name");
  has(ErrorOf(kTools, {.mode = v1::ToolChoice::NONE, .names = {"now"}}), "none");
}

TEST(CallRulesTest, NothingIsRestrictedByDefault) {
  EXPECT_FALSE(Rules(R"([{"type": "web_search"}, {"name": "f"}])", {.mode = v1::ToolChoice::AUTO})
                   ->restricts());
  EXPECT_FALSE(Rules("", {.mode = v1::ToolChoice::AUTO, .parallel = false})->restricts());
  EXPECT_FALSE(Rules(kTools, {.mode = v1::ToolChoice::NONE})->restricts());
  EXPECT_TRUE(Rules(kTools, {.mode = v1::ToolChoice::AUTO, .parallel = false})->restricts());
}

}  // namespace
}  // namespace tidepool::service
