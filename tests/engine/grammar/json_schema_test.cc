#include "engine/grammar/schema/json_schema.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/grammar/grammar_cases.h"

namespace tidepool::engine::grammar {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string ErrorOf(const std::string& schema) {
  const auto grammar = CompileGrammar(Schema(schema), nullptr);
  return grammar.ok() ? "compiled" : std::string(grammar.status().message());
}

void Expect(const std::string& schema, const std::vector<std::string>& valid,
            const std::vector<std::string>& invalid) {
  const auto grammar = CompileGrammar(Schema(schema), nullptr);
  ASSERT_TRUE(grammar.ok()) << schema << ": " << grammar.status();
  for (const std::string& text : valid) EXPECT_TRUE(Accepts(*grammar, text)) << schema << text;
  for (const std::string& text : invalid) EXPECT_FALSE(Accepts(*grammar, text)) << schema << text;
}

TEST(JsonSchemaTest, WhitespaceIsBounded) {
  const std::string schema = R"({"type": "array", "items": {"type": "integer"}})";
  Expect(schema, {"[1,2]", "[1, 2]", "[\n  1,\n  2\n]", "[ ]"},
         {"[1,  2]", "[1,\n\n2]", " [1]", "[1] ", "[1,\t2]",
          absl::StrCat("[1,\n", std::string(21, ' '), "2]")});
}

TEST(JsonSchemaTest, AnotherWhitespacePatternReplacesTheDefault) {
  GrammarSource source = Schema("{}");
  source.whitespace_pattern = "[ \\t]{0,3}";
  const auto grammar = Compiled(source);
  EXPECT_TRUE(Accepts(grammar, "[1,\t  2]"));
  EXPECT_FALSE(Accepts(grammar, "[1,\n2]"));
  for (const char* wrong : {" *", "x?", "[ "}) {
    source.whitespace_pattern = wrong;
    const auto refused = CompileGrammar(source, nullptr);
    ASSERT_FALSE(refused.ok()) << wrong;
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("whitespace_pattern"));
  }
}

TEST(JsonSchemaTest, PropertiesComeInOrder) {
  const std::string schema = R"({"type": "object", "properties": {"b": {}, "a": {}},
                                 "required": ["c", "a"]})";
  Expect(schema, {R"({"b": 1, "a": 2, "c": 3})", R"({"a": 2, "c": 3, "d": 4})"},
         {R"({"a": 2, "b": 1, "c": 3})", R"({"d": 4, "a": 2, "c": 3})", R"({"a": 2})"});
}

TEST(JsonSchemaTest, AKeyCannotReturnInAnotherSpelling) {
  const std::string schema = R"({"properties": {"a": {"type": "integer"}}})";
  Expect(schema, {R"({"a": 1, "\u0062": "x"})"},
         {R"({"\u0061": "x"})", R"({"a": 1, "a": "x"})", R"({"a": 1, "\u0061": "x"})"});
}

TEST(JsonSchemaTest, CharactersCountOnceHoweverTheyAreWritten) {
  const std::string schema = R"({"type": "string", "minLength": 2, "maxLength": 2})";
  Expect(schema,
         {R"("ab")", "\"\u00e9\u00e9\"", R"("\u00e9\n")", R"("a\ud83d\ude00")", "\"a\U0001F600\""},
         {R"("\ud83d\ude00")", R"("\ud83da")", R"("a\ude00")", R"("abc")"});
}

TEST(JsonSchemaTest, NumbersFollowTheirValues) {
  Expect(R"({"type": "number", "minimum": 0.5, "maximum": 100, "multipleOf": 0.5})",
         {"0.5", "100", "99.5", "100.0", "7.50"}, {"0", "100.5", "0.25", "5e1", "-1", "007"});
  Expect(R"({"type": "integer", "exclusiveMinimum": -3, "maximum": 12})", {"-2", "0", "12"},
         {"-3", "13", "1.0", "-0"});
  Expect(R"({"multipleOf": 7, "minimum": 10})", {"14", "70", "\"x\""}, {"7", "15"});
  Expect(R"({"not": {"type": "integer"}, "type": "number"})", {"1.5", "0.25"}, {"1", "1.0"});
}

TEST(JsonSchemaTest, LimitsOfDraft4AndOpenApiCount) {
  Expect(R"({"type": "number", "minimum": 0, "exclusiveMinimum": true, "maximum": 1,
             "exclusiveMaximum": false})",
         {"0.1", "1"}, {"0", "-1", "1.5"});
  Expect(R"({"type": "integer", "format": "int32"})", {"2147483647", "-2147483648", "0"},
         {"2147483648", "-2147483649", "\"1\""});
  Expect(R"({"type": "number", "format": "int64"})", {"9223372036854775807", "5.0"},
         {"9223372036854775808", "0.5"});
  Expect(R"({"type": "number", "not": {"format": "int32"}})", {"2147483648", "0.5"}, {"7"});
  Expect(R"({"type": "number", "format": "double"})", {"1.5e3", "-7"}, {"\"x\""});
  Expect(R"({"type": "string", "format": "password"})", {R"("\u0061\n")"}, {"1"});
  Expect(R"({"type": "string", "format": "path"})", {R"("/a")"}, {"1"});
  Expect(
      R"({"type": "string", "format": "uuid4"})", {R"("d9428888-122b-41e1-b85d-61c4d29a9a0c")"},
      {R"("d9428888-122b-11e1-b85d-61c4d29a9a0c")", R"("d9428888-122b-41e1-785d-61c4d29a9a0c")"});
  Expect(R"({"type": "string", "format": "base64"})", {R"("")", R"("/+8=")", R"("AA==")"},
         {R"("AA=")", R"("AB==")", R"("A")", R"("_-8=")"});
}

TEST(JsonSchemaTest, SiblingsOfRefConstEnumAndAnyOfCount) {
  Expect(R"({"$ref": "#/$defs/s", "maxLength": 2, "$defs": {"s": {"type": "string"}}})",
         {R"("ab")"}, {R"("abc")", "1"});
  Expect(R"({"enum": ["a", "bb", 3, [1], {"x": 1}], "minLength": 2, "not": {"const": 3}})",
         {R"("bb")", "[1]", R"({"x": 1})"}, {R"("a")", "3"});
  Expect(R"({"anyOf": [{"type": "string"}, {"type": "integer"}], "maxLength": 1, "minimum": 5})",
         {R"("a")", "5"}, {R"("ab")", "4"});
}

TEST(JsonSchemaTest, ConditionsAndNegationsAreExact) {
  Expect(R"({"type": "object", "properties": {"kind": {"enum": ["a", "b"]}, "n": {}},
             "required": ["kind"], "if": {"properties": {"kind": {"const": "a"}}},
             "then": {"required": ["n"]}, "else": {"properties": {"n": false}}})",
         {R"({"kind": "a", "n": 1})", R"({"kind": "b"})"},
         {R"({"kind": "a"})", R"({"kind": "b", "n": 1})"});
  Expect(R"({"oneOf": [{"multipleOf": 2}, {"multipleOf": 3}], "type": "integer"})", {"2", "9"},
         {"6", "5"});
  Expect(R"({"type": "array", "not": {"items": {"type": "integer"}}})", {R"([1, "x"])"},
         {"[]", "[1, 2]"});
  Expect(R"({"type": "array", "items": {"enum": [1, 2, 3]}, "uniqueItems": true})",
         {"[]", "[2, 1]", "[3, 1, 2]"}, {"[1, 1]", "[1, 2, 1]", "[4]"});
}

TEST(JsonSchemaTest, RecursionIsUnbounded) {
  const std::string schema = R"({"type": "array", "items": {"$ref": "#"}})";
  Expect(schema, {"[]", "[[[], []], []]", std::string(2000, '[') + std::string(2000, ']')},
         {"[1]", "[[]"});
}

TEST(JsonSchemaTest, ErrorsNameThePointerTheKeywordAndTheReason) {
  EXPECT_THAT(ErrorOf(R"({"properties": {"a/b": {"uniqueItems": true}}})"),
              AllOf(HasSubstr("\"/properties/a~1b\""), HasSubstr("uniqueItems")));
  EXPECT_THAT(ErrorOf(R"({"properties": {"a\nb": {"uniqueItems": true}}})"),
              HasSubstr("at \"/properties/a\\x0ab\", keyword"));
  EXPECT_THAT(ErrorOf(R"({"items": {"pattern": "(a)\\1"}})"),
              AllOf(HasSubstr("\"/items\""), HasSubstr("\"pattern\""), HasSubstr("offset 3"),
                    HasSubstr("back-references")));
  EXPECT_THAT(ErrorOf(R"({"format": "idn-email"})"),
              AllOf(HasSubstr("\"format\""), HasSubstr("idn-email"), HasSubstr("remove it")));
  EXPECT_THAT(ErrorOf(R"({"$ref": "http://example.com/x"})"),
              AllOf(HasSubstr("\"$ref\""), HasSubstr("$defs")));
  EXPECT_THAT(ErrorOf(R"({"allOf": [{"$ref": "#"}]})"), HasSubstr("refers to itself"));
  EXPECT_THAT(ErrorOf(R"({"type": "strin"})"), HasSubstr("unknown type"));
  EXPECT_THAT(ErrorOf(R"({"minimum": "5"})"), HasSubstr("\"minimum\""));
  EXPECT_THAT(ErrorOf(R"({"minLength": -1})"), HasSubstr("not a count"));
  EXPECT_THAT(ErrorOf(R"({"type": "string", "const": 1})"), HasSubstr("no JSON text"));
  EXPECT_THAT(ErrorOf(R"({"properties": {"a": {"$ref": "#"}}, "required": ["a"],
                          "type": "object"})"),
              HasSubstr("no text matches"));
  EXPECT_THAT(ErrorOf("[]"), HasSubstr("an object or a boolean"));
  EXPECT_THAT(ErrorOf("{\"a\": 1"), HasSubstr("not valid JSON"));
  EXPECT_THAT(ErrorOf(R"({"a": 1, "a": 2})"), HasSubstr("twice"));
  EXPECT_THAT(ErrorOf(std::string(100, '[') + std::string(100, ']')), HasSubstr("64 levels"));
  EXPECT_THAT(ErrorOf("\"" + std::string(2 << 20, 'x') + "\""), HasSubstr("the limit is 1048576"));
}

TEST(JsonSchemaTest, LargeSchemasEndAtACount) {
  EXPECT_THAT(ErrorOf(R"({"multipleOf": 0.123456789012345, "maximum": 1e20, "type": "number"})"),
              ::testing::AnyOf(HasSubstr("too large"), HasSubstr("compiled")));
  std::string branches;
  for (int i = 0; i < 12; ++i) {
    absl::StrAppend(&branches, i > 0 ? "," : "", R"({"anyOf": [{"required": ["a)", i,
                    R"("]}, {"required": ["b)", i, R"("]}]})");
  }
  EXPECT_THAT(ErrorOf(absl::StrCat(R"({"allOf": [)", branches, "]}")), HasSubstr("alternatives"));
}

}  // namespace
}  // namespace tidepool::engine::grammar
