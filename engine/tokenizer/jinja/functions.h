// The filters, tests and methods of the template language.
#ifndef TIDEPOOL_ENGINE_TOKENIZER_JINJA_FUNCTIONS_H_
#define TIDEPOOL_ENGINE_TOKENIZER_JINJA_FUNCTIONS_H_

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
#include "engine/tokenizer/jinja/value.h"

namespace tidepool::engine::jinja {

// What a rendering may still spend; RESOURCE_EXHAUSTED past it.
class Budget {
 public:
  Budget(int64_t steps, int64_t copied_bytes) : steps_(steps), copied_bytes_(copied_bytes) {}

  absl::Status Step(int64_t steps = 1);
  // Before bytes are copied into a new string, or a string of so many bytes is searched.
  absl::Status Copy(size_t bytes);
  // Before an operation that goes through all of `value`.
  absl::Status Visit(const Value& value);

 private:
  int64_t steps_;
  int64_t copied_bytes_;
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

// Methods of strings, dicts, lists and loops. `HasMethod` is what `value.name` finds before any
// key.
bool HasMethod(const Value& value, absl::string_view name);
absl::StatusOr<Value> CallMethod(absl::string_view name, const Call& call);

// Filters that work on sequences; part of ApplyFilter. Unset: no such filter.
std::optional<absl::StatusOr<Value>> ApplySequenceFilter(absl::string_view name, const Call& call);

// value.name and value[key] without methods: undefined where there is nothing.
Value GetAttribute(const Value& value, absl::string_view name);
absl::StatusOr<Value> GetItem(const Value& value, const Value& key);

}  // namespace tidepool::engine::jinja

#endif  // TIDEPOOL_ENGINE_TOKENIZER_JINJA_FUNCTIONS_H_
