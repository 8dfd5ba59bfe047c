// SchemaEmitter: writes the shapes of terms as rules of a grammar.
#ifndef TIDEPOOL_ENGINE_GRAMMAR_SCHEMA_SCHEMA_EMITTER_H_
#define TIDEPOOL_ENGINE_GRAMMAR_SCHEMA_SCHEMA_EMITTER_H_

#include <cstdint>
#include <deque>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/grammar/grammar_ir.h"
#include "engine/grammar/schema/schema_normalizer.h"
#include "engine/grammar/schema/shapes.h"

namespace tidepool::engine::grammar {

// The texts between the values of a JSON text.
struct JsonTokens {
  JsonTokens(Regex whitespace, GrammarIr* ir);

  Expr comma, colon;
  Expr open_object, close_object, close_empty_object;
  Expr open_array, close_array, close_empty_array;
};

// Thread-compatible.
class SchemaEmitter {
 public:
  // The pointers must outlive this object. `whitespace` matches the text that may be between two
  // tokens of JSON.
  SchemaEmitter(SchemaNormalizer* normalizer, Regex whitespace, GrammarIr* ir)
      : normalizer_(*normalizer), ir_(*ir), tokens_(whitespace, ir) {}

  // Rules that are written after this call allow only numbers of this form.
  void LimitNumbers(Regex form) { number_form_ = form; }

  // Returns the JSON texts whose value matches `root`. Returns the errors of the normalizer, and
  // INVALID_ARGUMENT if a keyword needs too many rules.
  absl::StatusOr<Expr> Emit(Term root);

  // For the emitters of arrays and objects.
  Expr Value(Term term);
  Expr Key(Regex keys, Escapes escapes);
  const JsonTokens& tokens() const { return tokens_; }
  GrammarIr& ir() { return ir_; }
  SchemaNormalizer& normalizer() { return normalizer_; }

 private:
  absl::StatusOr<Expr> EmitShapes(const Shapes& shapes);
  absl::Status At(Term term, const absl::Status& status) const;

  SchemaNormalizer& normalizer_;
  GrammarIr& ir_;
  const JsonTokens tokens_;
  Regex number_form_ = kNoRegex;  // kNoRegex: any
  absl::flat_hash_map<Term, int32_t> rules_;
  std::deque<Term> left_;  // terms whose rules have no body yet
};

absl::StatusOr<Expr> EmitArray(const ArrayShape& array, SchemaEmitter* emitter);
absl::StatusOr<Expr> EmitObject(const ObjectShape& object, SchemaEmitter* emitter);

}  // namespace tidepool::engine::grammar

#endif  // TIDEPOOL_ENGINE_GRAMMAR_SCHEMA_SCHEMA_EMITTER_H_
