#include "engine/chat_template/jinja/json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace tidepool::engine::jinja {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 100;

absl::StatusOr<Text> UserText(const std::string& bytes, absl::string_view what) {
  RETURN_IF_ERROR(base::CheckUtf8(bytes, absl::StrCat("a string in ", what)));
  return Text(bytes, TextOrigin::kUser);
}

absl::StatusOr<Value> Convert(const Json& json, absl::string_view what, int depth) {
  if (depth > kMaxDepth) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " are nested deeper than ", kMaxDepth, " levels"));
  }
  switch (json.type()) {
    case Json::value_t::boolean:
      return Value::MakeBool(json.get<bool>());
    case Json::value_t::number_unsigned:
      if (json.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return absl::InvalidArgumentError(absl::StrCat("the integer ", json.get<uint64_t>(), " in ",
                                                       what, " does not fit in 64 bits, signed"));
      }
      return Value::MakeInt(json.get<int64_t>());
    case Json::value_t::number_integer:
      return Value::MakeInt(json.get<int64_t>());
    case Json::value_t::number_float:
      return Value::MakeFloat(json.get<double>());
    case Json::value_t::string: {
      ASSIGN_OR_RETURN(Text text, UserText(json.get_ref<const std::string&>(), what));
      return Value::MakeText(std::move(text));
    }
    case Json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const Json& item : json) {
        ASSIGN_OR_RETURN(Value value, Convert(item, what, depth + 1));
        items.push_back(std::move(value));
      }
      return Value::MakeList(std::move(items));
    }
    case Json::value_t::object: {
      Dict dict;
      for (const auto& [key, item] : json.items()) {
        ASSIGN_OR_RETURN(Text text, UserText(key, what));
        ASSIGN_OR_RETURN(Value value, Convert(item, what, depth + 1));
        dict.Set(std::move(text), std::move(value));
      }
      return Value::MakeDict(std::move(dict));
    }
    default:
      return Value();
  }
}

// Writes one JSON document.
class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Budget* budget)
      : style_(style),
        budget_(*budget),
        item_separator_(style.item_separator.value_or(style.indent.has_value() ? "," : ", ")),
        key_separator_(style.key_separator.value_or(": ")) {}

  absl::Status Write(const Value& value, int64_t level) {
    if (value.IsNone()) {
      out_ += "null";
    } else if (const bool* flag = value.As<bool>()) {
      out_ += *flag ? "true" : "false";
    } else if (const int64_t* integer = value.As<int64_t>()) {
      absl::StrAppend(&out_, *integer);
    } else if (const double* number = value.As<double>()) {
      WriteFloat(*number);
    } else if (const Text* text = value.AsText()) {
      WriteText(*text);
    } else if (const List* list = value.AsList();
               list != nullptr && (list->IsTuple() || list->kind == List::Kind::kList)) {
      return WriteList(*list, level);
    } else if (const Dict* dict = value.AsDict()) {
      return WriteDict(*dict, level);
    } else if (value.IsUndefined()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tojson of an undefined value: ", *value.As<Undefined>()->what));
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("tojson cannot write a value of type ", TypeName(value)));
    }
    // Separators and indents can make the text larger than the value, so the bytes of the text are
    // also subtracted from the budget.
    return Pay();
  }

  Text Take() { return Text(out_, origin_); }

 private:
  void WriteFloat(double number) {
    if (std::isnan(number)) {
      out_ += "NaN";
    } else if (std::isinf(number)) {
      out_ += number < 0 ? "-Infinity" : "Infinity";
    } else {
      out_ += FormatFloat(number);
    }
  }

  void WriteText(const Text& text) {
    origin_ = Both(origin_, text.origin());
    out_.push_back('"');
    absl::string_view rest = text.bytes();
    while (!rest.empty()) {
      const base::Utf8Char next = base::NextUtf8Char(rest);
      WriteChar(next.code_point, rest.substr(0, next.size));
      rest.remove_prefix(next.size);
    }
    out_.push_back('"');
  }

  void WriteChar(char32_t c, absl::string_view bytes) {
    constexpr absl::string_view kEscaped = "\"\\\n\r\t\b\f";
    constexpr absl::string_view kLetters = "\"\\nrtbf";
    const size_t known = c < 0x80 ? kEscaped.find(static_cast<char>(c)) : absl::string_view::npos;
    if (known != absl::string_view::npos) {
      out_.push_back('\\');
      out_.push_back(kLetters[known]);
    } else if (c < 0x20 || (style_.ascii && c > 0x7E && c < 0x10000)) {
      absl::StrAppendFormat(&out_, "\\u%04x", static_cast<uint32_t>(c));
    } else if (style_.ascii && c >= 0x10000) {
      const uint32_t rest = static_cast<uint32_t>(c) - 0x10000;
      absl::StrAppendFormat(&out_, "\\u%04x\\u%04x", 0xD800 + (rest >> 10),
                            0xDC00 + (rest & 0x3FF));
    } else {
      absl::StrAppend(&out_, bytes);
    }
  }

  // Subtracts the bytes that were written since the last call from the budget.
  absl::Status Pay() {
    const size_t written = out_.size() - paid_;
    paid_ = out_.size();
    return budget_.Copy(written);
  }

  // Writes a key as json.dumps does: numbers and constants are converted to strings.
  absl::Status WriteKey(const Value& key) {
    if (const Text* text = key.AsText()) {
      WriteText(*text);
      return absl::OkStatus();
    }
    if (!key.IsNone() && !IsNumber(key)) {
      return absl::InvalidArgumentError(
          absl::StrCat("tojson cannot write a key of type ", TypeName(key)));
    }
    out_ += "\"";
    RETURN_IF_ERROR(Write(key, 0));
    out_ += "\"";
    return absl::OkStatus();
  }

  absl::Status WriteList(const List& list, int64_t level) {
    if (list.items.empty()) {
      out_ += "[]";
      return absl::OkStatus();
    }
    out_ += "[";
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_ += item_separator_;
      NewLine(level + 1);
      RETURN_IF_ERROR(Write(list.items[i], level + 1));
    }
    NewLine(level);
    out_ += "]";
    return absl::OkStatus();
  }

  absl::Status WriteDict(const Dict& dict, int64_t level) {
    if (dict.size() == 0) {
      out_ += "{}";
      return absl::OkStatus();
    }
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sort_keys) {
      absl::Status status;
      std::stable_sort(entries.begin(), entries.end(), [&status](const auto* a, const auto* b) {
        const absl::StatusOr<int> compared = Compare(a->first, b->first);
        if (!compared.ok()) status = compared.status();
        return compared.ok() && *compared < 0;
      });
      RETURN_IF_ERROR(status);
    }
    out_ += "{";
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_ += item_separator_;
      NewLine(level + 1);
      RETURN_IF_ERROR(WriteKey(entries[i]->first));
      out_ += key_separator_;
      RETURN_IF_ERROR(Write(entries[i]->second, level + 1));
    }
    NewLine(level);
    out_ += "}";
    return absl::OkStatus();
  }

  void NewLine(int64_t level) {
    if (!style_.indent.has_value()) return;
    out_.push_back('\n');
    for (int64_t i = 0; i < level; ++i) out_ += *style_.indent;
  }

  const JsonStyle& style_;
  Budget& budget_;
  const std::string item_separator_;
  const std::string key_separator_;
  TextOrigin origin_ = TextOrigin::kTemplate;
  std::string out_;
  size_t paid_ = 0;  // number of bytes of out_ that were subtracted from the budget
};

}  // namespace

absl::StatusOr<Value> FromJson(const Json& json, absl::string_view what) {
  return Convert(json, what, 0);
}

absl::StatusOr<Text> ToJson(const Value& value, const JsonStyle& style, Budget* budget) {
  JsonWriter writer(style, budget);
  RETURN_IF_ERROR(writer.Write(value, 0));
  Text text = writer.Take();
  RETURN_IF_ERROR(budget->CheckText(text.size()));
  RETURN_IF_ERROR(budget->Characters(text.size()));
  return text;
}

}  // namespace tidepool::engine::jinja
