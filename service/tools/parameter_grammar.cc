#include "service/tools/parameter_grammar.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/grammar/schema/json_schema.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"
#include "nlohmann/json.hpp"
#include "service/tools/tool_schemas.h"

namespace tidepool::service {
namespace {

using engine::grammar::Expr;
using engine::grammar::GrammarIr;
using engine::grammar::kEmptyExpr;
using engine::grammar::kNoExpr;
using engine::grammar::kNoRegex;
using engine::grammar::Regex;
using engine::grammar::RegexPool;
using engine::grammar::ResponseTexts;
using engine::grammar::RootValue;
using engine::grammar::SubschemaEmitter;
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
constexpr absl::string_view kTool = "t";  // a name for the only tool

class ParameterWriter {
 public:
  ParameterWriter(const ToolFormat& format, absl::string_view schema, const ResponseTexts& texts,
                  GrammarIr* ir)
      : format_(format),
        schema_(schema),
        texts_(texts),
        ir_(*ir),
        pool_(ir->regexes()),
        types_(absl::StrCat(R"([{"function":{"name":")", kTool, R"(","parameters":)", schema,
                            "}}]")) {}

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
    ASSIGN_OR_RETURN(emitter_, SubschemaEmitter::Create(schema_, &ir_));
    std::vector<Part> parts;
    for (const auto& [name, schema] : properties.items()) {
      ASSIGN_OR_RETURN(const Expr parameter, Parameter(name));
      parts.push_back({parameter, is_required(name)});
    }
    return is_python() ? JoinWithCommas(parts) : Join(parts);
  }

 private:
  struct Part {
    Expr parameter;
    bool required;
  };

  bool is_python() const { return format_.form == ArgumentForm::kPython; }
  bool IsNameCharacter(char c) const {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_') return true;
    return !is_python() && absl::StrContains("-.$@", absl::string_view(&c, 1));
  }

  Expr Join(const std::vector<Part>& parts) {
    std::vector<Expr> all;
    for (const Part& part : parts) {
      all.push_back(part.required ? part.parameter : ir_.Repeat(part.parameter, 0, 1));
    }
    return ir_.Seq(all);
  }

  Expr JoinWithCommas(const std::vector<Part>& parts) {
    // Goes from the last part to the first. `next` is what may follow the parts before part i.
    // `first` is the arguments if these parts are missing.
    Expr next = kEmptyExpr, first = kEmptyExpr;
    for (size_t i = parts.size(); i-- > 0;) {
      const Expr here = ir_.Seq({parts[i].parameter, next});
      const Expr later = ir_.Seq({Text(", "), here});
      first = parts[i].required ? here : ir_.Alt({here, first});
      next = parts[i].required ? later : ir_.Alt({later, next});
    }
    return first;
  }

  absl::StatusOr<Expr> AnyParameters() {
    engine::grammar::ByteSet letters;
    for (int c = 0; c < 128; ++c) letters.set(c, IsNameCharacter(static_cast<char>(c)));
    const Expr name = ir_.Match(pool_.Repeat(pool_.Bytes(letters), 1, kMaxNameBytes));
    if (is_python()) {
      ASSIGN_OR_RETURN(emitter_, SubschemaEmitter::Create("{}", &ir_));
      ASSIGN_OR_RETURN(const Expr any, emitter_->Emit("", RootValue::kAny));
      const Expr one = ir_.Seq({name, Text("="), any});
      const Expr more = ir_.Repeat(ir_.Seq({Text(", "), one}), 0, engine::grammar::kNoLimit);
      return ir_.Repeat(ir_.Seq({one, more}), 0, 1);
    }
    const Expr text = ir_.Match(TextWithout(EndMarker(), &pool_));
    Expr value = ir_.Seq({Text(format_.parameter.key_end), text});
    if (!format_.parameter.json_key_end.empty()) {
      ASSIGN_OR_RETURN(emitter_, SubschemaEmitter::Create("{}", &ir_));
      ASSIGN_OR_RETURN(const Expr json, emitter_->Emit("", RootValue::kNoString));
      value = ir_.Alt({value, ir_.Seq({Text(format_.parameter.json_key_end), json})});
    }
    return ir_.Repeat(ir_.Seq({Text(format_.parameter.key_begin), name, value,
                               Text(format_.parameter.value_end)}),
                      0, engine::grammar::kNoLimit);
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
    const bool plain =
        std::all_of(name.begin(), name.end(), [this](char c) { return IsNameCharacter(c); });
    if (name.empty() || name.size() > kMaxNameBytes || !plain) {
      return Refuse("properties", absl::StrCat("the name ", base::Quoted(name),
                                               " cannot be written in this model's syntax; use "
                                               "letters, digits, '_', '-' and '.'"));
    }
    const std::string pointer =
        absl::StrCat("/properties/", absl::StrReplaceAll(name, {{"~", "~0"}, {"/", "~1"}}));
    if (is_python()) {
      ASSIGN_OR_RETURN(const Expr value, emitter_->Emit(pointer, RootValue::kAny));
      return ir_.Seq({Text(absl::StrCat(name, "=")), value});
    }
    ASSIGN_OR_RETURN(const Expr json, emitter_->Emit(pointer, RootValue::kNoString));
    ASSIGN_OR_RETURN(Regex strings, emitter_->Strings(pointer));
    const bool only_strings = types_.TypesOf(kTool, name).IsText();
    const bool says_form = !format_.parameter.json_key_end.empty();
    if (!only_strings && !says_form && strings != kNoRegex) {
      strings = pool_.And({strings, UntypedText()});
    }
    const Expr text = ir_.Match(pool_.And({strings, TextWithout(EndMarker(), &pool_)}));
    const absl::string_view json_end =
        says_form ? format_.parameter.json_key_end : format_.parameter.key_end;
    const Expr as_text =
        strings == kNoRegex ? kNoExpr : Member(name, format_.parameter.key_end, text);
    return ir_.Alt({as_text, only_strings ? kNoExpr : Member(name, json_end, json)});
  }

  Expr Member(const std::string& name, absl::string_view key_end, Expr value) {
    return ir_.Seq({Text(absl::StrCat(format_.parameter.key_begin, name, key_end)), value,
                    Text(format_.parameter.value_end)});
  }

  // Returns the texts that cannot be the JSON or Python of a value of another type.
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
    return texts_.MarkerOf(absl::StripAsciiWhitespace(format_.parameter.value_end));
  }
  Expr Text(absl::string_view text) { return ir_.Match(texts_.Match(text, &pool_)); }

  const ToolFormat& format_;
  const absl::string_view schema_;
  const ResponseTexts& texts_;
  GrammarIr& ir_;
  RegexPool& pool_;
  const ToolSchemas types_;
  std::unique_ptr<SubschemaEmitter> emitter_;
};

}  // namespace

absl::StatusOr<Expr> EmitParameters(const ToolFormat& format, absl::string_view schema,
                                    const ResponseTexts& texts, GrammarIr* ir) {
  return ParameterWriter(format, schema, texts, ir).Write();
}

}  // namespace tidepool::service
