#include "engine/grammar/schema/schema_emitter.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::grammar {

JsonTokens::JsonTokens(Regex whitespace, GrammarIr* ir) {
  RegexPool& pool = ir->regexes();
  const auto before = [&](const char* text) { return pool.Concat(whitespace, pool.Literal(text)); };
  comma = ir->Match(pool.Concat(before(","), whitespace));
  colon = ir->Match(pool.Concat(before(":"), whitespace));
  open_object = ir->Match(pool.Concat(pool.Literal("{"), whitespace));
  open_array = ir->Match(pool.Concat(pool.Literal("["), whitespace));
  close_object = ir->Match(before("}"));
  close_array = ir->Match(before("]"));
  close_empty_object = ir->Match(pool.Literal("}"));
  close_empty_array = ir->Match(pool.Literal("]"));
}

Expr SchemaEmitter::Value(Term term) {
  if (term == kFalseTerm) return kNoExpr;
  const auto [entry, added] = rules_.try_emplace(term, 0);
  if (added) {
    entry->second = ir_.AddRule("a schema");
    left_.push_back(term);
  }
  return ir_.Rule(entry->second);
}

Expr SchemaEmitter::Key(Regex keys, Escapes escapes) {
  const Expr key = ir_.Match(ir_.regexes().Quoted(keys, escapes));
  return ir_.Seq({key, tokens_.colon});
}

// Adds the place of the term's schema to an error that has none.
absl::Status SchemaEmitter::At(Term term, const absl::Status& status) const {
  return normalizer_.Located(term, status);
}

absl::StatusOr<Expr> SchemaEmitter::EmitShapes(const Shapes& shapes) {
  RegexPool& pool = ir_.regexes();
  std::vector<Expr> choices;
  if (shapes.null) choices.push_back(ir_.Match(pool.Literal("null")));
  if (shapes.yes) choices.push_back(ir_.Match(pool.Literal("true")));
  if (shapes.no) choices.push_back(ir_.Match(pool.Literal("false")));
  const bool limited = number_form_ != kNoRegex && shapes.numbers != kNoRegex;
  choices.push_back(ir_.Match(limited ? pool.And({shapes.numbers, number_form_}) : shapes.numbers));
  if (shapes.strings != kNoRegex) {
    choices.push_back(ir_.Match(pool.Quoted(shapes.strings, shapes.escapes)));
  }
  for (const ArrayShape& array : shapes.arrays) {
    ASSIGN_OR_RETURN(choices.emplace_back(), EmitArray(array, this));
  }
  for (const ObjectShape& object : shapes.objects) {
    ASSIGN_OR_RETURN(choices.emplace_back(), EmitObject(object, this));
  }
  return ir_.Alt(std::move(choices));
}

absl::StatusOr<Expr> SchemaEmitter::Emit(Term root) {
  const Expr value = Value(root);
  while (!left_.empty()) {
    const Term term = left_.front();
    left_.pop_front();
    ASSIGN_OR_RETURN(const Shapes* shapes, normalizer_.Normalize(term));
    const absl::StatusOr<Expr> body = EmitShapes(*shapes);
    if (!body.ok()) return At(term, body.status());
    ir_.SetRule(rules_.at(term), *body);
    const absl::Status limits = ir_.CheckLimits();
    if (!limits.ok()) return At(term, limits);
  }
  return value;
}

}  // namespace tidepool::engine::grammar
