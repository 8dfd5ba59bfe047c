#include "service/tools/parameter_grammar.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/grammar/schema/json_schema.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"
#include "nlohmann/json.hpp"

namespace tidepool::service {
namespace {

using engine::grammar::Expr;
using engine::grammar::GrammarIr;
using engine::grammar::JsonSchemaOptions;
using engine::grammar::kEmptyExpr;
using engine::grammar::kNoExpr;
using engine::grammar::kNoRegex;
using engine::grammar::Regex;
using engine::grammar::RegexPool;
using engine::grammar::ResponseTexts;
using engine::grammar::RootValue;
using Json = nlohmann::ordered_json;

// Keywords without an effect on objects whose properties are all declared.
constexpr absl::string_view kHarmless[] = {
    "type",    "properties", "required", "additionalProperties", "title",    "description",
    "$schema", "$defs",      "$id",      "definitions",          "examples", "default",
    "$comment"};

absl::Status Refuse(absl::string_view keyword, absl::string_view reason) {
  return absl::InvalidArgumentError(
      absl::StrCat("JSON schema, at \"\", keyword \"", keyword, "\": ", reason));
}

constexpr size_t kMaxNameBytes = 128;

bool IsNameCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.' ||
         c == '$' || c == '@';
}

class ParameterWriter {
 public:
  ParameterWriter(const ParameterFormat& format, absl::string_view schema,
                  const ResponseTexts& texts, GrammarIr* ir)
      : format_(format), schema_(schema), texts_(texts), ir_(*ir), pool_(ir->regexes()) {}

  absl::StatusOr<Expr> Write() {
    if (schema_.empty()) return AnyParameters();
    const Json root = Json::parse(schema_, nullptr, /*allow_exceptions=*/false);
    if (root.is_boolean()) return kEmptyExpr;
    RETURN_IF_ERROR(Check(root));
    const Json properties = root.value("properties", Json::object());
    const Json required = root.value("required", Json::array());
    const auto is_required = [&required](const std::string& name) {
      return std::find(required.begin(), required.end(), name) != required.end();
    };
    for (const Json& name : required) {
      if (name.is_string() && properties.contains(name.get<std::string>())) continue;
      return Refuse("required", absl::StrCat("names ", base::Quoted(name.dump()),
                                             ", which is not in properties; declare it"));
    }
    std::vector<Expr> parts;
    for (const auto& [name, schema] : properties.items()) {
      ASSIGN_OR_RETURN(const Expr parameter, Parameter(name));
      parts.push_back(is_required(name) ? parameter : ir_.Repeat(parameter, 0, 1));
    }
    return ir_.Seq(parts);
  }

 private:
  absl::StatusOr<Expr> AnyParameters() {
    engine::grammar::ByteSet letters;
    for (int c = 0; c < 128; ++c) letters.set(c, IsNameCharacter(static_cast<char>(c)));
    const Expr name = ir_.Match(pool_.Repeat(pool_.Bytes(letters), 1, kMaxNameBytes));
    const Expr text = ir_.Match(TextWithout(EndMarker(), &pool_));
    Expr value = ir_.Seq({Text(format_.key_end), text});
    if (!format_.json_key_end.empty()) {
      ASSIGN_OR_RETURN(const Expr json, EmitJsonSchema("{}", {.root = RootValue::kNoString}, &ir_));
      value = ir_.Alt({value, ir_.Seq({Text(format_.json_key_end), json})});
    }
    return ir_.Repeat(ir_.Seq({Text(format_.key_begin), name, value, Text(format_.value_end)}), 0,
                      engine::grammar::kNoLimit);
  }

  static absl::Status Check(const Json& root) {
    if (!root.is_object()) return Refuse("", "a schema is an object or a boolean");
    for (const auto& [keyword, value] : root.items()) {
      const bool harmless =
          std::find(std::begin(kHarmless), std::end(kHarmless), keyword) != std::end(kHarmless);
      if (harmless) continue;
      return Refuse(keyword,
                    "is not supported for the arguments of this model's calls, which have only "
                    "declared parameters; move the condition into properties");
    }
    if (root.contains("properties") && !root["properties"].is_object()) {
      return Refuse("properties", "is not an object");
    }
    if (root.contains("required") && !root["required"].is_array()) {
      return Refuse("required", "is not an array");
    }
    const Json type = root.value("type", Json("object"));
    const bool object = type == "object" || (type.is_array() && std::find(type.begin(), type.end(),
                                                                          "object") != type.end());
    return object ? absl::OkStatus() : Refuse("type", "must be \"object\": arguments are objects");
  }

  absl::StatusOr<Expr> Parameter(const std::string& name) {
    const bool plain = std::all_of(name.begin(), name.end(), IsNameCharacter);
    if (name.empty() || name.size() > kMaxNameBytes || !plain) {
      return Refuse("properties", absl::StrCat("the name ", base::Quoted(name),
                                               " cannot be written in this model's syntax; use "
                                               "letters, digits, '_', '-' and '.'"));
    }
    const std::string pointer =
        absl::StrCat("/properties/", absl::StrReplaceAll(name, {{"~", "~0"}, {"/", "~1"}}));
    const JsonSchemaOptions options = {.root = RootValue::kNoString, .pointer = pointer};
    ASSIGN_OR_RETURN(const Expr json, EmitJsonSchema(schema_, options, &ir_));
    ASSIGN_OR_RETURN(Regex strings, StringValues(schema_, options, &pool_));
    ASSIGN_OR_RETURN(const bool only_strings, HasOnlyStrings(options));
    const bool says_form = !format_.json_key_end.empty();
    if (!only_strings && !says_form && strings != kNoRegex) {
      strings = pool_.And({strings, UntypedText()});
    }
    const Expr text = ir_.Match(pool_.And({strings, TextWithout(EndMarker(), &pool_)}));
    const absl::string_view json_end = says_form ? format_.json_key_end : format_.key_end;
    const Expr as_text = strings == kNoRegex ? kNoExpr : Member(name, format_.key_end, text);
    return ir_.Alt({as_text, only_strings ? kNoExpr : Member(name, json_end, json)});
  }

  Expr Member(const std::string& name, absl::string_view key_end, Expr value) {
    return ir_.Seq(
        {Text(absl::StrCat(format_.key_begin, name, key_end)), value, Text(format_.value_end)});
  }

  // Returns whether every value of the subschema is a string.
  absl::StatusOr<bool> HasOnlyStrings(const JsonSchemaOptions& options) {
    GrammarIr alone;
    ASSIGN_OR_RETURN(const Expr others, EmitJsonSchema(schema_, options, &alone));
    alone.set_start(others);
    const absl::Status finished = alone.Finish();
    return !alone.node(others).productive;
  }

  // A text that is certainly not the JSON or Python of another value.
  Regex UntypedText() {
    engine::grammar::ByteSet letters;
    for (char c = 'a'; c <= 'z'; ++c) letters.set(c);
    for (char c = 'A'; c <= 'Z'; ++c) letters.set(c);
    const Regex any = pool_.AnyText();
    std::vector<Regex> words;
    for (const char* word : {"null", "None", "true", "True", "false", "False"}) {
      words.push_back(pool_.Literal(word));
    }
    engine::grammar::ByteSet blanks;
    blanks.set(' ').set('\n').set('\t').set('\r').set('\v').set('\f');
    const Regex trimmed = pool_.Concat(
        pool_.Or(words), pool_.Repeat(pool_.Bytes(blanks), 0, engine::grammar::kNoLimit));
    return pool_.And({pool_.Concat(pool_.Bytes(letters), any), pool_.Not(trimmed)});
  }

  engine::grammar::Marker EndMarker() const {
    return texts_.MarkerOf(absl::StripAsciiWhitespace(format_.value_end));
  }
  Expr Text(absl::string_view text) { return ir_.Match(texts_.Match(text, &pool_)); }

  const ParameterFormat& format_;
  const absl::string_view schema_;
  const ResponseTexts& texts_;
  GrammarIr& ir_;
  RegexPool& pool_;
};

}  // namespace

absl::StatusOr<Expr> EmitParameters(const ParameterFormat& format, absl::string_view schema,
                                    const ResponseTexts& texts, GrammarIr* ir) {
  return ParameterWriter(format, schema, texts, ir).Write();
}

}  // namespace tidepool::service
