// GrammarSource: a constraint for output, as a request has it.
#ifndef TIDEPOOL_ENGINE_GRAMMAR_GRAMMAR_SOURCE_H_
#define TIDEPOOL_ENGINE_GRAMMAR_GRAMMAR_SOURCE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace tidepool::engine::grammar {

enum class GrammarKind : uint8_t {
  kJsonSchema,  // text: a schema of JSON Schema
  kRegex,       // text: a regular expression that the whole output matches
  kChoice,      // choices: the possible outputs
  kGbnf,        // text: a grammar in llama.cpp's GBNF
};

struct GrammarSource {
  GrammarKind kind = GrammarKind::kJsonSchema;
  std::string text;
  std::vector<std::string> choices;
  std::string whitespace_pattern;  // only for kJsonSchema; empty: the default
  bool coerce_one_of = false;      // only for kJsonSchema: treat oneOf as anyOf
};

}  // namespace tidepool::engine::grammar

#endif  // TIDEPOOL_ENGINE_GRAMMAR_GRAMMAR_SOURCE_H_
