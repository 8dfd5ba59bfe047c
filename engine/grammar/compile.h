// Compiles the constraints of requests.
//
//   ASSIGN_OR_RETURN(std::shared_ptr<const Grammar> grammar,
//                    CompileGrammar({.kind = GrammarKind::kRegex, .text = "[0-9]+"}, nullptr));
#ifndef TIDEPOOL_ENGINE_GRAMMAR_COMPILE_H_
#define TIDEPOOL_ENGINE_GRAMMAR_COMPILE_H_

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/grammar_ir.h"
#include "engine/grammar/grammar_source.h"
#include "engine/tokenizer/tokenizer.h"

namespace tidepool::engine::grammar {

inline constexpr size_t kMaxChoices = 10'000;
inline constexpr size_t kMaxChoiceBytes = 1 << 20;  // of all choices together

// Like CompileGrammar, which is Grammar(CompileIr(...)), but without the constructor of Grammar.
absl::StatusOr<GrammarIr> CompileIr(const GrammarSource& source, const Tokenizer* tokenizer);

// `tokenizer` is for the token terms of GBNF, and may be null. Returns INVALID_ARGUMENT with the
// place, the reason and a remedy if the source is wrong or cannot be enforced exactly.
absl::StatusOr<std::shared_ptr<const Grammar>> CompileGrammar(const GrammarSource& source,
                                                              const Tokenizer* tokenizer);

// Adds the texts that the source allows to a grammar, and returns them as an expression. Returns
// the errors of CompileGrammar, except those that GrammarIr::Finish finds.
absl::StatusOr<Expr> EmitGrammar(const GrammarSource& source, const Tokenizer* tokenizer,
                                 GrammarIr* ir);

}  // namespace tidepool::engine::grammar

#endif  // TIDEPOOL_ENGINE_GRAMMAR_COMPILE_H_
