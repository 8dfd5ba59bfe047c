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
  int64_t steps = 0;       // number of nodes evaluated and items visited
  int64_t made_bytes = 0;  // bytes of all values that are created or searched
  int64_t text_bytes = 0;  // bytes of one string
};

// The part of its limits that a rendering has not used yet. When a limit is used up, functions
// return RESOURCE_EXHAUSTED with the name of the limit.
class Budget {
 public:
  explicit Budget(const Limits& limits) : limits_(limits), left_(limits) {}

  absl::Status Step(int64_t steps = 1);
  // Must be called before `bytes` bytes are copied into a new string, or before a string of this
  // size is searched.
  absl::Status Copy(size_t bytes);
  // Must be called before a string of `bytes` bytes is processed character by character.
  absl::Status Characters(size_t bytes);
  // Checks the size of one string, but does not subtract it from the budget.
  absl::Status CheckText(size_t bytes) const;
  // Does what CheckText and Copy do, for a new string.
  absl::Status Grow(size_t bytes);
  // Must be called before a list of `items` items is created or visited.
  absl::Status Items(size_t items);
  // Like Items, for items that are new strings.
  absl::Status Texts(size_t items);
  // Must be called before an operation that visits all of `value`, including nested values.
  absl::Status Visit(const Value& value);
  // Like Visit, before `value` is formatted as text, which takes longer.
  absl::Status Write(const Value& value);
  // Must be called before an index into `value` is used. In a string, an index requires counting
  // characters.
  absl::Status Index(const Value& value);

 private:
  const Limits limits_;
  Limits left_;
};

// The arguments of one call of a function.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // Returns INVALID_ARGUMENT if there are too many arguments or unknown names.
  absl::Status Check(absl::string_view function,
                     std::initializer_list<absl::string_view> parameters) const;
  // Returns the argument of a parameter, which was passed by position or by name. Returns null if
  // it was not passed.
  const Value* Find(size_t place, absl::string_view name) const;
  // Return the argument of a parameter as a string or an integer. Return nullopt if the argument
  // was not passed or is none, and INVALID_ARGUMENT if it has another type.
  absl::StatusOr<std::optional<Text>> FindText(size_t place, absl::string_view name) const;
  absl::StatusOr<std::optional<int64_t>> FindInt(size_t place, absl::string_view name) const;
  // Returns the truth value of a parameter's argument, or false if it was not passed.
  bool FindFlag(size_t place, absl::string_view name) const;
};

// One call of a filter, test or method on the value `self`.
struct Call {
  const Value& self;
  const Arguments& arguments;
  Budget& budget;
};

// Return UNIMPLEMENTED with the name if there is no such function.
absl::StatusOr<Value> ApplyFilter(absl::string_view name, const Call& call);
absl::StatusOr<bool> ApplyTest(absl::string_view name, const Call& call);
bool HasFilter(absl::string_view name);
bool HasTest(absl::string_view name);

// Methods of strings, dicts and lists. In `value.name`, a method takes precedence over a key;
// HasMethod returns whether there is such a method. CallMethod returns INVALID_ARGUMENT for methods
// that would change a value; Jinja's sandbox forbids them, too.
bool HasMethod(const Value& value, absl::string_view name);
absl::StatusOr<Value> CallMethod(absl::string_view name, const Call& call);

// An entry of a table of functions.
struct NamedFunction {
  absl::string_view name;
  absl::StatusOr<Value> (*apply)(const Call& call);
};
absl::Span<const NamedFunction> TextFilters();
absl::Span<const NamedFunction> NumberFilters();
absl::Span<const NamedFunction> SequenceFilters();
absl::Span<const NamedFunction> SelectionFilters();  // map, select, sort and similar filters
absl::Span<const NamedFunction> TextMethods();
// Returns null if there is no such function.
const NamedFunction* FindFunction(absl::Span<const NamedFunction> table, absl::string_view name);

// Evaluate value.name and value[key], ignoring methods. The result is undefined if there is no such
// attribute or item.
Value GetAttribute(const Value& value, absl::string_view name);
absl::StatusOr<Value> GetItem(const Value& value, const Value& key);

// Evaluates left OP right for + - * / // % ** ~.
absl::StatusOr<Value> ApplyOperator(absl::string_view op, const Value& left, const Value& right,
                                    Budget* budget);
// Evaluates `format % values`. `values` is a tuple, a dict, or one value.
absl::StatusOr<Value> FormatPercent(const Text& format, const Value& values, Budget* budget);
// Evaluates `format.format(arguments)`.
absl::StatusOr<Value> FormatBraces(const Text& format, const Arguments& arguments, Budget* budget);

// Returns the items of `call.self`, and subtracts their cost from the budget.
absl::StatusOr<std::vector<Value>> SelfItems(const Call& call);
// Returns str(call.self), and subtracts its cost from the budget.
absl::StatusOr<Text> SelfText(const Call& call);
// Returns a list value of the texts.
Value TextList(std::vector<Text> texts);

}  // namespace tidepool::engine::jinja

#endif  // TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_FUNCTIONS_H_
