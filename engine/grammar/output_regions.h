// Grammars for responses that have several parts: reasoning, free text, and parts with a syntax.
//
//   GrammarIr ir;
//   const Reasoning think = {.begin = FindMarker(tokenizer, "<think>"),
//                            .end = FindMarker(tokenizer, "</think>"),
//                            .start = ReasoningStart::kOpen};
//   ASSIGN_OR_RETURN(const Expr json, EmitGrammar(source, &tokenizer, &ir));
//   ir.set_start(AfterReasoning(think, json, &ir));
#ifndef TIDEPOOL_ENGINE_GRAMMAR_OUTPUT_REGIONS_H_
#define TIDEPOOL_ENGINE_GRAMMAR_OUTPUT_REGIONS_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/grammar/grammar_ir.h"
#include "engine/grammar/marker.h"
#include "engine/tokenizer/tokenizer.h"

namespace tidepool::engine::grammar {

// Returns the marker with this text, with its token if the vocabulary has a control token for it.
Marker FindMarker(const Tokenizer& tokenizer, absl::string_view text);

// Matches the marker.
Regex MarkerRegex(const Marker& marker, RegexPool* pool);
// Match any bytes in which none of the markers occurs, and which end with the first occurrence of
// one of them. Control tokens other than the markers do not match. Requires: no text is empty.
Regex TextWithout(const std::vector<Marker>& markers, RegexPool* pool);
Regex TextThrough(const std::vector<Marker>& markers, RegexPool* pool);

// Whether a response begins with reasoning.
enum class ReasoningStart : uint8_t {
  kNone,
  kOptional,  // the model may open its reasoning
  kOpen,      // the prompt ends inside of reasoning
};

struct Reasoning {
  Marker begin;
  Marker end;
  ReasoningStart start = ReasoningStart::kNone;
  bool may_stay_open = false;  // whether the response may end inside of the reasoning
};

// Returns the reasoning, followed by at most two line breaks and `response`. The end marker cannot
// occur inside of the reasoning. In `response` the markers have no meaning.
Expr AfterReasoning(const Reasoning& reasoning, Expr response, GrammarIr* ir);

// Returns free text with parts in it. Each part begins with one of `markers`, which cannot occur in
// the free text, and continues with `part`. If `parts` is 1, nothing may follow the first part
// except white space.
enum class Parts : uint8_t { kOne, kMany };
Expr FreeTextWithParts(const std::vector<Marker>& markers, Expr part, Parts parts, GrammarIr* ir);

}  // namespace tidepool::engine::grammar

#endif  // TIDEPOOL_ENGINE_GRAMMAR_OUTPUT_REGIONS_H_
