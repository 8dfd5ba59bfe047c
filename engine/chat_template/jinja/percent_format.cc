// Implements `format % values`.
#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/chat_template/jinja/format.h"
#include "engine/chat_template/jinja/functions.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace tidepool::engine::jinja {
namespace {

using Result = absl::StatusOr<Value>;

class PercentFormatter {
 public:
  PercentFormatter(const Text& format, const Value& values, Budget* budget)
      : format_(format), values_(values), budget_(*budget) {
    const List* list = values.AsList();
    is_tuple_ = list != nullptr && list->IsTuple();
    is_mapping_ = values.AsDict() != nullptr || (list != nullptr && !is_tuple_);
  }

  Result Run() {
    const absl::string_view bytes = format_.bytes();
    RETURN_IF_ERROR(budget_.Copy(bytes.size()));
    while (at_ < bytes.size()) {
      const size_t percent = std::min(bytes.find('%', at_), bytes.size());
      out_.Append(format_.Slice(at_, percent));
      at_ = percent;
      if (at_ < bytes.size()) RETURN_IF_ERROR(Field());
      RETURN_IF_ERROR(budget_.Step());
    }
    if (!is_mapping_ && next_ < ValueCount()) {
      return absl::InvalidArgumentError("'%' has more values than its format uses");
    }
    RETURN_IF_ERROR(budget_.Grow(out_.size()));
    return Value::MakeText(std::move(out_));
  }

 private:
  size_t ValueCount() const { return is_tuple_ ? values_.AsList()->items.size() : 1; }

  Result NextValue() {
    if (next_ >= ValueCount()) {
      return absl::InvalidArgumentError("'%' has fewer values than its format uses");
    }
    ++next_;
    return is_tuple_ ? values_.AsList()->items[next_ - 1] : values_;
  }

  char Peek() const { return at_ < format_.size() ? format_.bytes()[at_] : 0; }

  // Parses "*" or digits. Returns nullopt if there is neither.
  absl::StatusOr<std::optional<int64_t>> Size() {
    if (Peek() == '*') {
      ++at_;
      ASSIGN_OR_RETURN(const Value value, NextValue());
      if (!IsInteger(value)) return absl::InvalidArgumentError("'*' in a format needs an integer");
      return std::optional<int64_t>(ToInt64(value));
    }
    if (!absl::ascii_isdigit(Peek())) return std::optional<int64_t>();
    int64_t size = 0;
    constexpr int64_t kMaxSize = 1'000'000'000;
    for (; absl::ascii_isdigit(Peek()); ++at_) {
      size = size * 10 + (Peek() - '0');
      if (size > kMaxSize) return absl::ResourceExhaustedError("a format's width is too large");
    }
    return std::optional<int64_t>(size);
  }

  absl::Status Flags(FormatSpec* spec) {
    bool zeros = false;
    for (; absl::StrContains("-+ #0", Peek()) && Peek() != 0; ++at_) {
      if (Peek() == '-') spec->align = '<';
      if (Peek() == '+' || (Peek() == ' ' && spec->sign == 0)) spec->sign = Peek();
      if (Peek() == '#') spec->alternate = true;
      if (Peek() == '0') zeros = true;
    }
    ASSIGN_OR_RETURN(const std::optional<int64_t> width, Size());
    spec->width = width.value_or(0);
    if (spec->width < 0) {
      spec->align = '<';
      if (__builtin_sub_overflow(0, spec->width, &spec->width)) spec->width = 0;
    }
    if (zeros && spec->align == 0) {
      spec->align = '=';
      spec->fill = Text("0", TextOrigin::kTemplate);
    }
    if (Peek() == '.') {
      ++at_;
      ASSIGN_OR_RETURN(const std::optional<int64_t> precision, Size());
      spec->precision = std::max<int64_t>(precision.value_or(0), 0);
    }
    if (absl::StrContains("hlL", Peek()) && Peek() != 0) ++at_;
    return absl::OkStatus();
  }

  // Formats one field. The position is at its '%'.
  absl::Status Field() {
    ++at_;
    std::optional<Value> value;
    if (Peek() == '(') {
      const size_t close = format_.bytes().find(')', at_);
      if (close == std::string::npos || values_.AsDict() == nullptr) {
        return absl::InvalidArgumentError("'%(name)' in a format needs a dict");
      }
      const std::string name = format_.bytes().substr(at_ + 1, close - at_ - 1);
      const Value* found = values_.AsDict()->Find(name);
      if (found == nullptr) {
        return absl::InvalidArgumentError(absl::StrCat("the dict of '%' has no key '", name, "'"));
      }
      value = *found;
      at_ = close + 1;
    }
    FormatSpec spec;
    RETURN_IF_ERROR(Flags(&spec));
    const char type = Peek();
    if (type == 0) return absl::InvalidArgumentError("a format ends in the middle of a '%' field");
    ++at_;
    if (type == '%') {
      out_.Append(format_.Slice(at_ - 1, at_));
      return absl::OkStatus();
    }
    if (!value.has_value()) {
      ASSIGN_OR_RETURN(value, NextValue());
    }
    ASSIGN_OR_RETURN(const Value text, One(*value, type, spec));
    out_.Append(*text.AsText());
    return absl::OkStatus();
  }

  Result One(const Value& value, char type, FormatSpec spec) {
    if (absl::StrContains("sr", type)) {
      RETURN_IF_ERROR(budget_.Visit(value));
      if (spec.align != '<') spec.align = '>';
      spec.fill = Text(" ", TextOrigin::kTemplate);
      return FormatText(type == 's' ? ToText(value) : Repr(value), spec, &budget_);
    }
    if (spec.precision.value_or(0) > kMaxPrecision) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a format's precision is above ", kMaxPrecision));
    }
    if (type == 'c') return Character(value, spec);
    if (!absl::StrContains("diuoxXeEfFgG", type)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a format has no type ", base::Quoted(absl::string_view(&type, 1))));
    }
    if (value.IsUndefined()) return absl::InvalidArgumentError(*value.As<Undefined>()->what);
    spec.type = absl::StrContains("diu", type) ? 'd' : type;
    const double* number = value.As<double>();
    if (spec.type == 'd' && number != nullptr) {
      constexpr double kLimit = 9.2e18;
      if (!(std::abs(*number) < kLimit)) {
        return absl::InvalidArgumentError("a float does not fit in an integer");
      }
      return FormatNumber(Value::MakeInt(static_cast<int64_t>(*number)), spec, &budget_);
    }
    return FormatNumber(value, spec, &budget_);
  }

  Result Character(const Value& value, const FormatSpec& spec) {
    Text text;
    if (value.AsText() != nullptr) text = *value.AsText();
    if (value.As<int64_t>() != nullptr) {
      const int64_t point = *value.As<int64_t>();
      if (point < 0 || point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF)) {
        return absl::InvalidArgumentError("'%c' needs a character");
      }
      std::string bytes;
      base::AppendUtf8(static_cast<char32_t>(point), &bytes);
      text = Text(bytes, TextOrigin::kUser);
    }
    ASSIGN_OR_RETURN(const int64_t size, Length(Value::MakeText(text)));
    if (size != 1) return absl::InvalidArgumentError("'%c' needs a character");
    FormatSpec padding = spec;
    padding.precision.reset();
    if (padding.align != '<') padding.align = '>';
    padding.fill = Text(" ", TextOrigin::kTemplate);
    return FormatText(text, padding, &budget_);
  }

  const Text& format_;
  const Value& values_;
  Budget& budget_;
  bool is_tuple_ = false;
  bool is_mapping_ = false;
  size_t at_ = 0;
  size_t next_ = 0;
  Text out_;
};

}  // namespace

Result FormatPercent(const Text& format, const Value& values, Budget* budget) {
  return PercentFormatter(format, values, budget).Run();
}

}  // namespace tidepool::engine::jinja
