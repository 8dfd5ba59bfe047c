// Setters for the tables of flags. Each setter parses a value and stores it in a field of Config. A
// path of member pointers names the field:
//
//   SetInteger<1, 1024, &Config::model, &ModelFlags::threads>
//
// INVALID_ARGUMENT says which values are accepted. The caller adds the name of the flag to the
// message.
#ifndef TIDEPOOL_SERVICE_CLI_FLAG_SETTERS_H_
#define TIDEPOOL_SERVICE_CLI_FLAG_SETTERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "kernels/base/status_macros.h"
#include "service/base/units.h"
#include "service/cli/config.h"

namespace tidepool::service {

template <auto... path>
auto& FieldOf(Config* config) {
  return (*config.*....*path);
}

inline absl::Status EmptyValue() { return absl::InvalidArgumentError("the value is empty"); }

template <auto... path>
absl::Status SetString(absl::string_view value, Config* config) {
  if (value.empty()) return EmptyValue();
  FieldOf<path...>(config) = std::string(value);
  return absl::OkStatus();
}

// Sets a string, which may be empty.
template <auto... path>
absl::Status SetAnyString(absl::string_view value, Config* config) {
  FieldOf<path...>(config) = std::string(value);
  return absl::OkStatus();
}

template <auto... path>
absl::Status AddString(absl::string_view value, Config* config) {
  if (value.empty()) return EmptyValue();
  FieldOf<path...>(config).emplace_back(value);
  return absl::OkStatus();
}

inline absl::StatusOr<bool> ParseSwitch(absl::string_view value) {
  if (value == "true") return true;
  if (value == "false") return false;
  return absl::InvalidArgumentError(absl::StrCat("\"", value, "\" is not true or false"));
}

template <auto... path>
absl::Status SetSwitch(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(FieldOf<path...>(config), ParseSwitch(value));
  return absl::OkStatus();
}

// Sets an enum field from a switch: to `on` if the switch is given, else to `off`.
template <auto off, auto on, auto... path>
absl::Status SetEither(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(const bool is_on, ParseSwitch(value));
  FieldOf<path...>(config) = is_on ? on : off;
  return absl::OkStatus();
}

template <int64_t least, int64_t most, auto... path>
absl::Status SetInteger(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(FieldOf<path...>(config), ParseInteger(value, least, most));
  return absl::OkStatus();
}

// Adds each number of a list. "-b 1,8" and "-b 1 -b 8" mean the same.
template <int64_t least, int64_t most, auto... path>
absl::Status AddIntegers(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> numbers, ParseIntegers(value, least, most));
  auto& list = FieldOf<path...>(config);
  list.insert(list.end(), numbers.begin(), numbers.end());
  return absl::OkStatus();
}

template <int least, int most, auto... path>
absl::Status SetNumber(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(FieldOf<path...>(config), ParseNumber(value, least, most));
  return absl::OkStatus();
}

// Sets a number greater than 0.
template <int most, auto... path>
absl::Status SetPositiveNumber(absl::string_view value, Config* config) {
  const absl::StatusOr<float> number = ParseNumber(value, 0, most);
  if (!number.ok() || *number == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("must be a number greater than 0 and at most ", most, " (got ", value, ")"));
  }
  FieldOf<path...>(config) = *number;
  return absl::OkStatus();
}

template <auto... path>
absl::Status SetTime(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(FieldOf<path...>(config), ParseTime(value));
  return absl::OkStatus();
}

template <auto... path>
absl::Status SetAddress(absl::string_view value, Config* config) {
  RETURN_IF_ERROR(ParseHostPort(value).status());
  FieldOf<path...>(config) = std::string(value);
  return absl::OkStatus();
}

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_FLAG_SETTERS_H_
