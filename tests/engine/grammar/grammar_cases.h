// Grammars of every kind for tests, with texts that they accept.
#ifndef TIDEPOOL_TESTS_ENGINE_GRAMMAR_GRAMMAR_CASES_H_
#define TIDEPOOL_TESTS_ENGINE_GRAMMAR_GRAMMAR_CASES_H_

#include <memory>
#include <string>
#include <vector>

#include "engine/grammar/compile.h"
#include "engine/grammar/matcher.h"

namespace tidepool::engine::grammar {

struct GrammarCase {
  GrammarSource source;
  std::vector<std::string> texts;
};

inline GrammarSource Schema(std::string text) {
  return {.kind = GrammarKind::kJsonSchema, .text = std::move(text)};
}
inline GrammarSource RegexSource(std::string text) {
  return {.kind = GrammarKind::kRegex, .text = std::move(text)};
}
inline GrammarSource Choice(std::vector<std::string> choices) {
  return {.kind = GrammarKind::kChoice, .choices = std::move(choices)};
}
inline GrammarSource Gbnf(std::string text) {
  return {.kind = GrammarKind::kGbnf, .text = std::move(text)};
}

// Returns an array of equal elements.
inline std::string Elements(int count, const std::string& element) {
  std::string text = "[" + element;
  for (int i = 1; i < count; ++i) text += ", " + element;
  return text + "]";
}

inline std::vector<GrammarCase> GrammarCases() {
  return {
      {RegexSource("[a-c]+(-[0-9]{2,4})?|\\u00e9+"), {"abc-123", "\u00e9\u00e9"}},
      {RegexSource("(a|ab)(c|bcd)(d*)"), {"abcd", "acdd"}},
      {Choice({"yes", "no", "", "yesterday"}), {"", "yes", "yesterday"}},
      {Schema("{}"), {R"({"a": [1.5e3, "x\n\u00e9", {"b": null}], "c": true})", "[]", "\"\""}},
      {Schema(R"({"type": "string", "maxLength": 5})"), {R"("ab\ud83d\ude00c")", R"("")"}},
      {Schema(R"({"type": "string", "maxLength": 70})"), {R"("item number one")"}},
      {Schema(R"({"type": "string", "pattern": "^.{0,30}!?$"})"), {R"("item number one!")"}},
      {Schema(R"({"type": "object", "properties": {"ab": {"type": "integer"}, "abcd": {}}})"),
       {R"({"ab": 1, "abc": 2, "x": null})"}},
      {Schema(R"({"type": "object", "patternProperties": {"^x-[a-z]+$": {"type": "integer"}}})"),
       {R"({"x-abc": 1, "x-": "y", "abcdef": []})"}},
      {Schema(R"({"type": "string", "pattern": "^[A-Z][a-z]*$", "minLength": 3})"), {R"("Abc")"}},
      {Schema(R"({"type": "number", "minimum": -1.5, "exclusiveMaximum": 20, "multipleOf": 0.25})"),
       {"-1.5", "19.75", "0", "3.500"}},
      {Schema(R"({"properties": {"name": {"type": "string"}, "tags": {"type": "array",
          "items": {"enum": ["a", "b", 1]}, "maxItems": 3}, "next": {"$ref": "#"}},
          "required": ["name"], "additionalProperties": false, "type": "object"})"),
       {R"({"name": "x"})",
        "{\n  \"name\": \"x\",\n  \"tags\": [\"a\", 1],\n  \"next\": "
        "{\"name\": \"\"}\n}"}},
      {Schema(R"({"oneOf": [{"properties": {"k": {"const": "i"}, "v": {"type": "integer"}}},
          {"properties": {"k": {"const": "s"}, "v": {"type": "string"}}}],
          "type": "object", "required": ["k", "v"]})"),
       {R"({"k": "i", "v": 12})", R"({"k":"s","v":"12"})"}},
      {Schema(R"({"type": "array", "contains": {"const": 7}, "minContains": 2, "maxContains": 2,
          "items": {"type": "integer"}})"),
       {"[7, 1, 7]"}},
      // Elements with the same expressions and other stacks.
      {Schema(R"({"type": "array", "minItems": 100, "items": {"type": "object", "properties": {
          "name": {"type": "string", "maxLength": 9}, "ab": {"enum": ["a", 12]}},
          "required": ["name", "ab"], "additionalProperties": false}})"),
       {Elements(100, R"({"name": "item", "ab": "a"})")}},
      // Counts around the size of the longest token of tests.
      {Schema(R"({"type": "string", "minLength": 14, "maxLength": 19})"), {R"("item number one")"}},
      {RegexSource("([a-c]{12,19}|b{0,17})(a|(bc){15,40})"), {"abcabcabcabca", "a"}},
      {RegexSource("(a*b?){14,16}c{15}"), {"ccccccccccccccc", "aabccccccccccccccc"}},
      {Gbnf("root ::= expr\nexpr ::= term ([+*] term)*\nterm ::= [0-9]+ | \"(\" expr \")\"\n"),
       {"1+(2*3)", "((7))"}},
      {Gbnf("root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"\"\n"), {"", "aabc", "ac"}},
  };
}

// Requires: the source compiles.
inline std::shared_ptr<const Grammar> Compiled(const GrammarSource& source) {
  absl::StatusOr<std::shared_ptr<const Grammar>> grammar = CompileGrammar(source, nullptr);
  return *std::move(grammar);
}

inline bool Accepts(const std::shared_ptr<const Grammar>& grammar, const std::string& text) {
  Matcher matcher(grammar, nullptr);
  return matcher.AcceptText(text) == text.size() && matcher.accepts();
}

}  // namespace tidepool::engine::grammar

#endif  // TIDEPOOL_TESTS_ENGINE_GRAMMAR_GRAMMAR_CASES_H_
