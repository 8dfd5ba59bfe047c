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
  int64_t made_bytes = 0;  // bytes of all values created and searched
  int64_t text_bytes = 0;  // of one string
};

// The remaining budget of a rendering. When it is used up, functions return RESOURCE_EXHAUSTED with
// the name of the limit.
class Budget {
 public:
  explicit Budget(const Limits& limits) : limits_(limits), left_(limits) {}

  absl::Status Step(int64_t steps = 1);
  // Call it before copying `bytes` bytes into a new string, or searching a string of this size.
  absl::Status Copy(size_t bytes);
  // Call it before processing a string of `bytes` bytes character by character.
  absl::Status Characters(size_t bytes);
  // Checks the size of one string, without charging it.
  absl::Status CheckText(size_t bytes) const;
  // Does both for a new string.
  absl::Status Grow(size_t bytes);
  // Call it before creating or visiting a list with `items` items.
  absl::Status Items(size_t items);
  // Same for items that are new strings.
  absl::Status Texts(size_t items);
  // Call it before an operation that visits all of `value`, including nested values.
  absl::Status Visit(const Value& value);
  // Same before `value` is formatted as text, which takes longer.
  absl::Status Write(const Value& value);
  // Call it before indexing into `value`: for a string, this must count characters.
  absl::Status Index(const Value& value);

 private:
  const Limits limits_;
  Limits left_;
};

// The arguments of one call.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // INVALID_ARGUMENT if there are too many arguments, or unknown names.
  absl::Status Check(absl::string_view function,
                     std::initializer_list<absl::string_view> parameters) const;
  // Returns a parameter's argument, given by position or by name. Null if it is not given.
  const Value* Find(size_t place, absl::string_view name) const;
  // Same as a string or an integer. nullopt if it is not given or none. INVALID_ARGUMENT for
  // another type.
  absl::StatusOr<std::optional<Text>> FindText(size_t place, absl::string_view name) const;
  absl::StatusOr<std::optional<int64_t>> FindInt(size_t place, absl::string_view name) const;
  // Returns the truth value of the argument. False if it is not given.
  bool FindFlag(size_t place, absl::string_view name) const;
};

// One call of a filter, test or method on the value `self`.
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

// Methods of strings, dicts and lists. For `value.name`, methods take precedence over keys:
// HasMethod says if there is one. INVALID_ARGUMENT for methods that would change a value, which
// Jinja's sandbox also forbids.
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
absl::Span<const NamedFunction> SelectionFilters();  // map, select, groupby, sort and their like
absl::Span<const NamedFunction> TextMethods();
// Returns null if there is no such function.
const NamedFunction* FindFunction(absl::Span<const NamedFunction> table, absl::string_view name);

// Evaluates value.name and value[key] without methods. Undefined if there is neither.
Value GetAttribute(const Value& value, absl::string_view name);
absl::StatusOr<Value> GetItem(const Value& value, const Value& key);

// Evaluates left OP right for + - * / // % ** ~.
absl::StatusOr<Value> ApplyOperator(absl::string_view op, const Value& left, const Value& right,
                                    Budget* budget);
// Evaluates format % values. `values` is a tuple, a dict, or one value.
absl::StatusOr<Value> FormatPercent(const Text& format, const Value& values, Budget* budget);
// Evaluates format.format(arguments).
absl::StatusOr<Value> FormatBraces(const Text& format, const Arguments& arguments, Budget* budget);

// Returns the items of `call.self`, charged to the budget.
absl::StatusOr<std::vector<Value>> SelfItems(const Call& call);
// Returns str(call.self), charged to the budget.
absl::StatusOr<Text> SelfText(const Call& call);
// Converts texts to a list.
Value TextList(std::vector<Text> texts);

}  // namespace tidepool::engine::jinja

#endif  // TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_FUNCTIONS_H_
