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
constexpr absl::string_view kReadableNumber =
    R"(-?[0-9]{1,100}(\.[0-9]{1,100})?([eE][+-]?[0-9]{1,2})?)";

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

class Emitter final : public SubschemaEmitter {
 public:
  Emitter(std::unique_ptr<SchemaDocument> document, Regex whitespace, OneOf one_of, GrammarIr* ir)
      : document_(std::move(document)),
        normalizer_(document_.get(), &ir->regexes(), one_of),
        emitter_(&normalizer_, whitespace, ir) {}

  void LimitNumbers(Regex form) { emitter_.LimitNumbers(form); }

  absl::StatusOr<Expr> Emit(const std::string& pointer, RootValue root) override {
    SchemaTerms& terms = normalizer_.terms();
    ASSIGN_OR_RETURN(Term term, TermAt(pointer));
    if (root == RootValue::kObject) term = terms.And({term, terms.Schema(object_)});
    if (root == RootValue::kNoString) {
      term = terms.And({term, terms.Not(terms.Schema(string_))});
    }
    return emitter_.Emit(term);
  }

  absl::StatusOr<Regex> Strings(const std::string& pointer) override {
    ASSIGN_OR_RETURN(const Term term, TermAt(pointer));
    const absl::StatusOr<const Shapes*> shapes = normalizer_.Normalize(term);
    if (!shapes.ok()) return normalizer_.Located(term, shapes.status());
    return (*shapes)->strings;
  }

 private:
  absl::StatusOr<Term> TermAt(const std::string& pointer) {
    const Json* root = &document_->root();
    if (!pointer.empty()) {
      ASSIGN_OR_RETURN(root, document_->Resolve(root, absl::StrCat("#", pointer)));
    }
    return normalizer_.terms().Schema(*root);
  }

  const std::unique_ptr<SchemaDocument> document_;
  const Json object_ = {{"type", "object"}};
  const Json string_ = {{"type", "string"}};
  SchemaNormalizer normalizer_;
  SchemaEmitter emitter_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SubschemaEmitter>> SubschemaEmitter::Create(absl::string_view schema,
                                                                           GrammarIr* ir) {
  ASSIGN_OR_RETURN(std::unique_ptr<SchemaDocument> document, SchemaDocument::Parse(schema));
  ASSIGN_OR_RETURN(const Regex whitespace, WhitespaceRegex("", &ir->regexes()));
  ASSIGN_OR_RETURN(const Regex number,
                   ParseRegex(kReadableNumber, RegexScope::kWhole, &ir->regexes()));
  auto emitter = std::make_unique<Emitter>(std::move(document), whitespace, OneOf::kExact, ir);
  emitter->LimitNumbers(number);
  return emitter;
}

absl::StatusOr<Expr> EmitJsonSchema(absl::string_view schema, const JsonSchemaOptions& options,
                                    GrammarIr* ir) {
  ASSIGN_OR_RETURN(std::unique_ptr<SchemaDocument> document, SchemaDocument::Parse(schema));
  ASSIGN_OR_RETURN(const Regex whitespace,
                   WhitespaceRegex(options.whitespace_pattern, &ir->regexes()));
  return Emitter(std::move(document), whitespace, options.one_of, ir).Emit("", options.root);
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
