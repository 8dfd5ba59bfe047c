// Compiles grammars in GBNF, the syntax of llama.cpp (its grammars/README.md).
#ifndef TIDEPOOL_ENGINE_GRAMMAR_GBNF_H_
#define TIDEPOOL_ENGINE_GRAMMAR_GBNF_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/grammar/grammar_ir.h"
#include "engine/tokenizer/tokenizer.h"

namespace tidepool::engine::grammar {

inline constexpr size_t kMaxGbnfBytes = 1 << 20;

// The grammar starts with the rule "root". `tokenizer` resolves token terms such as <think> and
// <[1000]>; it may be null if there are none. Returns INVALID_ARGUMENT with the line, the reason
// and the remedy if the grammar is wrong, left-recursive or over a limit.
absl::StatusOr<GrammarIr> CompileGbnf(absl::string_view text, const Tokenizer* tokenizer,
                                      GrammarLimits limits);

// Adds the rules to a grammar, and returns the texts of the rule "root" as an expression. Returns
// the errors of CompileGbnf, except those of left recursion.
absl::StatusOr<Expr> EmitGbnf(absl::string_view text, const Tokenizer* tokenizer, GrammarIr* ir);

}  // namespace tidepool::engine::grammar

#endif  // TIDEPOOL_ENGINE_GRAMMAR_GBNF_H_
