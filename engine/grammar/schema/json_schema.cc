#include "engine/grammar/schema/json_schema.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/grammar/regex_parser.h"
#include "engine/grammar/schema/schema_document.h"
#include "engine/grammar/schema/schema_emitter.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::grammar {
namespace {

constexpr absl::string_view kWhitespace = R"(( |\n[ \t]{0,20})?)";
constexpr int32_t kMaxWhitespaceBytes = 256;

absl::StatusOr<Regex> WhitespaceRegex(absl::string_view pattern, RegexPool* pool) {
  if (pattern.empty()) pattern = kWhitespace;
  absl::StatusOr<Regex> regex = ParseRegex(pattern, RegexScope::kWhole, pool);
  if (!regex.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("whitespace_pattern: ", regex.status().message()));
  }
  ByteSet blanks;
  blanks.set(' ').set('\t').set('\n').set('\r');
  const Regex allowed = pool->Repeat(pool->Bytes(blanks), 0, kMaxWhitespaceBytes);
  if (pool->IsNothing(pool->And({*regex, pool->Not(allowed)}))) return regex;
  return absl::InvalidArgumentError(
      absl::StrCat("whitespace_pattern: must match only blanks, tabs and line breaks, and at most ",
                   kMaxWhitespaceBytes, " of them; use a count such as {0,20}"));
}

absl::StatusOr<Term> RootTerm(const JsonSchemaOptions& options, SchemaDocument* document,
                              SchemaTerms* terms) {
  const Json* root = &document->root();
  if (!options.pointer.empty()) {
    ASSIGN_OR_RETURN(root, document->Resolve(root, absl::StrCat("#", options.pointer)));
  }
  return terms->Schema(*root);
}

}  // namespace

absl::StatusOr<Expr> EmitJsonSchema(absl::string_view schema, const JsonSchemaOptions& options,
                                    GrammarIr* ir) {
  ASSIGN_OR_RETURN(const std::unique_ptr<SchemaDocument> document, SchemaDocument::Parse(schema));
  ASSIGN_OR_RETURN(const Regex whitespace,
                   WhitespaceRegex(options.whitespace_pattern, &ir->regexes()));
  SchemaNormalizer normalizer(document.get(), &ir->regexes(), options.one_of);
  SchemaEmitter emitter(&normalizer, whitespace, ir);
  SchemaTerms& terms = normalizer.terms();
  ASSIGN_OR_RETURN(Term term, RootTerm(options, document.get(), &terms));
  const Json object = {{"type", "object"}};
  const Json string = {{"type", "string"}};
  if (options.root == RootValue::kObject) term = terms.And({term, terms.Schema(object)});
  if (options.root == RootValue::kNoString) {
    term = terms.And({term, terms.Not(terms.Schema(string))});
  }
  return emitter.Emit(term);
}

absl::StatusOr<Regex> StringValues(absl::string_view schema, const JsonSchemaOptions& options,
                                   RegexPool* pool) {
  ASSIGN_OR_RETURN(const std::unique_ptr<SchemaDocument> document, SchemaDocument::Parse(schema));
  SchemaNormalizer normalizer(document.get(), pool, options.one_of);
  ASSIGN_OR_RETURN(const Term term, RootTerm(options, document.get(), &normalizer.terms()));
  const absl::StatusOr<const Shapes*> shapes = normalizer.Normalize(term);
  if (!shapes.ok()) return normalizer.Located(term, shapes.status());
  return (*shapes)->strings;
}

absl::StatusOr<GrammarIr> CompileJsonSchema(absl::string_view schema,
                                            const JsonSchemaOptions& options,
                                            const GrammarLimits& limits) {
  GrammarIr ir(limits);
  ASSIGN_OR_RETURN(const Expr value, EmitJsonSchema(schema, options, &ir));
  ir.set_start(value);
  const absl::Status finished = ir.Finish();
  if (!finished.ok()) {
    return SchemaError("", "", absl::StrCat("no JSON text is possible: ", finished.message()));
  }
  return ir;
}

}  // namespace tidepool::engine::grammar
