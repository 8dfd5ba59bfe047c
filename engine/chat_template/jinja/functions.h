// The filters, tests and methods of the template language.
#ifndef TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_FUNCTIONS_H_
#define TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_FUNCTIONS_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/chat_template/jinja/value.h"

namespace tidepool::engine::jinja {

struct Limits {
  int64_t steps = 0;       // nodes evaluated, items visited
  int64_t made_bytes = 0;  // of all values made and searched
  int64_t text_bytes = 0;  // of one string
};

// What a rendering may still spend. Past it RESOURCE_EXHAUSTED, which names the limit.
class Budget {
 public:
  explicit Budget(const Limits& limits) : limits_(limits), left_(limits) {}

  absl::Status Step(int64_t steps = 1);
  // Before bytes are copied into a new string, or a string of so many bytes is searched.
  absl::Status Copy(size_t bytes);
  // Before a string of so many bytes is gone through character by character.
  absl::Status Characters(size_t bytes);
  // For one string of this size, which is not paid for.
  absl::Status CheckText(size_t bytes) const;
  // Both, for a new string.
  absl::Status Grow(size_t bytes);
  // Before a list of so many items is made or visited.
  absl::Status Items(size_t items);
  // The same for items that are new strings.
  absl::Status Texts(size_t items);
  // Before an operation that goes through all of `value`, nested values too.
  absl::Status Visit(const Value& value);
  // The same before `value` is written as a text, which takes longer.
  absl::Status Write(const Value& value);
  // Before an item of `value` is found by its index: a string's characters are counted for it.
  absl::Status Index(const Value& value);

 private:
  const Limits limits_;
  Limits left_;
};

// The arguments of one call.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // INVALID_ARGUMENT where there are more arguments, or others, than these parameters.
  absl::Status Check(absl::string_view function,
                     std::initializer_list<absl::string_view> parameters) const;
  // The argument of a parameter by its place or its name; null: not given.
  const Value* Find(size_t place, absl::string_view name) const;
  // The same as a string or an integer; INVALID_ARGUMENT for other types; unset when not given or
  // none.
  absl::StatusOr<std::optional<Text>> FindText(size_t place, absl::string_view name) const;
  absl::StatusOr<std::optional<int64_t>> FindInt(size_t place, absl::string_view name) const;
  // Truth of what is given; false: not given.
  bool FindFlag(size_t place, absl::string_view name) const;
};

// One call of a filter, test or method; `self` is what it is applied to.
struct Call {
  const Value& self;
  const Arguments& arguments;
  Budget& budget;
};

// UNIMPLEMENTED names an unknown function.
absl::StatusOr<Value> ApplyFilter(absl::string_view name, const Call& call);
absl::StatusOr<bool> ApplyTest(absl::string_view name, const Call& call);
bool HasFilter(absl::string_view name);
bool HasTest(absl::string_view name);

// Methods of strings, dicts and lists. `HasMethod` is what `value.name` finds before any key.
// INVALID_ARGUMENT: those that would change a value, which Jinja's sandbox does not allow either.
bool HasMethod(const Value& value, absl::string_view name);
absl::StatusOr<Value> CallMethod(absl::string_view name, const Call& call);

// A table of functions by name.
struct NamedFunction {
  absl::string_view name;
  absl::StatusOr<Value> (*apply)(const Call& call);
};
absl::Span<const NamedFunction> TextFilters();
absl::Span<const NamedFunction> NumberFilters();
absl::Span<const NamedFunction> SequenceFilters();
absl::Span<const NamedFunction> SelectionFilters();  // map, select, groupby, sort and their like
absl::Span<const NamedFunction> TextMethods();
// Null: no such function.
const NamedFunction* FindFunction(absl::Span<const NamedFunction> table, absl::string_view name);

// value.name and value[key] without methods: undefined where there is nothing.
Value GetAttribute(const Value& value, absl::string_view name);
absl::StatusOr<Value> GetItem(const Value& value, const Value& key);

// left OP right for + - * / // % ** ~.
absl::StatusOr<Value> ApplyOperator(absl::string_view op, const Value& left, const Value& right,
                                    Budget* budget);
// format % values; `values` is a tuple, a dict, or one value.
absl::StatusOr<Value> FormatPercent(const Text& format, const Value& values, Budget* budget);
// format.format(arguments).
absl::StatusOr<Value> FormatBraces(const Text& format, const Arguments& arguments, Budget* budget);

// The items that `call.self` goes through, paid for.
absl::StatusOr<std::vector<Value>> SelfItems(const Call& call);
// str(call.self), paid for.
absl::StatusOr<Text> SelfText(const Call& call);
// Texts as a list.
Value TextList(std::vector<Text> texts);

}  // namespace tidepool::engine::jinja

#endif  // TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_FUNCTIONS_H_
