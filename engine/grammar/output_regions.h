// Grammars for responses that have several parts: reasoning, free text, and parts with a syntax.
//
//   GrammarIr ir;
//   const ResponseTexts texts(&tokenizer, {"<think>", "</think>"});
//   const Reasoning think = {.begin = texts.Match("<think>", &ir.regexes()),
//                            .end = texts.MarkerOf("</think>"), .start = ReasoningStart::kOpen};
//   ASSIGN_OR_RETURN(const Expr json, EmitGrammar(source, &tokenizer, &ir));
//   ir.set_start(AfterReasoning(think, json, OpenEnd::kRefused, &ir));
//
// Control tokens have no text in a response. In the expressions of this file, they match only where
// a grammar names them.
#ifndef TIDEPOOL_ENGINE_GRAMMAR_OUTPUT_REGIONS_H_
#define TIDEPOOL_ENGINE_GRAMMAR_OUTPUT_REGIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/grammar/grammar_ir.h"
#include "engine/grammar/marker.h"
#include "engine/tokenizer/tokenizer.h"

namespace tidepool::engine::grammar {

// Thread-safe: immutable. Builds expressions for the texts of a format. If a marker is a control
// token of the vocabulary, it is matched by this token only, and not by text.
class ResponseTexts {
 public:
  // `markers` are the texts that may be control tokens. `tokenizer` may be null if there are none.
  ResponseTexts(const Tokenizer* tokenizer, const std::vector<std::string>& markers);

  Marker MarkerOf(absl::string_view text) const;
  // Matches the text, which may contain markers. A marker that ends the generation is left out: it
  // may come wherever the grammar accepts.
  Regex Match(absl::string_view text, RegexPool* pool) const;

 private:
  std::vector<Marker> control_;  // longer markers first
  std::vector<int32_t> stop_ids_;
};

// TextWithout matches any bytes in which the marker does not occur. TextThrough matches any bytes
// that end with the first occurrence of the marker.
Regex TextWithout(const Marker& marker, RegexPool* pool);
Regex TextThrough(const Marker& marker, RegexPool* pool);
// Matches any bytes that do not begin with `first`, after white space.
Regex TextNotBeginning(char first, RegexPool* pool);

// Whether a response begins with reasoning.
enum class ReasoningStart : uint8_t {
  kNone,
  kOptional,  // the model may open its reasoning
  kOpen,      // the prompt ends inside of reasoning
};

struct Reasoning {
  Regex begin = kNoRegex;
  Marker end;
  Regex after = kEmptyRegex;  // the text that follows the end marker
  ReasoningStart start = ReasoningStart::kNone;
};

// Whether the response may end inside of the reasoning.
enum class OpenEnd : uint8_t { kRefused, kAllowed };

// Returns the reasoning, followed by `response`. The end marker cannot occur inside of the
// reasoning. In `response`, the markers of reasoning have no special meaning.
Expr AfterReasoning(const Reasoning& reasoning, Expr response, OpenEnd open_end, GrammarIr* ir);

// How many parts a text may have.
enum class Parts : uint8_t { kOne, kMany };

// Returns free text with parts in it. Each part begins with `marker`, which cannot occur in the
// free text, and continues with `part`. With Parts::kOne, only white space follows the part.
Expr FreeTextWithParts(const Marker& marker, Expr part, Parts parts, GrammarIr* ir);

}  // namespace tidepool::engine::grammar

#endif  // TIDEPOOL_ENGINE_GRAMMAR_OUTPUT_REGIONS_H_
