#include "service/http/json_fields.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/base/utf8.h"
#include "service/base/units.h"
#include "service/http/http_error.h"

namespace tidepool::service {
namespace {

// Returns a value in the form in which errors quote it: short and on one line.
std::string Shown(const Json& value) {
  if (value.is_array() || value.is_object()) return absl::StrCat("an ", value.type_name());
  return value.is_string() ? base::Quoted(value.get<std::string>()) : DumpJson(value);
}

}  // namespace

std::optional<int64_t> WholeNumber(const Json& value) {
  if (value.is_number_float()) {
    // above this, a double cannot represent every integer
    constexpr double kExact = int64_t{1} << 53;
    const double number = value.get<double>();
    if (std::trunc(number) != number || std::abs(number) > kExact) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return std::nullopt;
  }
  return value.get<int64_t>();
}

std::string JsonFields::PathOf(absl::string_view name) const { return absl::StrCat(path_, name); }

void JsonFields::Fail(absl::string_view name, absl::string_view complaint) {
  Fail(FieldError(PathOf(name), complaint));
}

void JsonFields::Fail(const absl::Status& status) { status_.Update(status); }

void JsonFields::Missing(absl::string_view name, absl::string_view complaint) {
  if (recorder_ != nullptr) recorder_->OnMissing(PathOf(name));
  missing_.Update(FieldError(PathOf(name), complaint));
}

void JsonFields::WrongType(absl::string_view name, const Json& found, absl::string_view wanted) {
  Fail(name, absl::StrCat("is ", Shown(found), "; it must be ", wanted));
}

const Json* JsonFields::Find(absl::string_view name, JsonTypes types) {
  asked_.emplace_back(name);
  const auto found = object_.find(asked_.back());
  const bool there = found != object_.end() && !found->is_null();
  if (recorder_ != nullptr) {
    using Presence = FieldRecorder::Presence;
    recorder_->OnField(PathOf(name), types, there ? Presence::kThere : Presence::kAbsent);
  }
  return there ? &*found : nullptr;
}

const Json* JsonFields::Array(absl::string_view name) {
  const Json* value = Find(name, {"array"});
  if (value == nullptr || value->is_array()) return value;
  WrongType(name, *value, "an array");
  return nullptr;
}

const Json* JsonFields::Object(absl::string_view name) {
  const Json* value = Find(name, {"object"});
  if (value == nullptr || value->is_object()) return value;
  WrongType(name, *value, "an object");
  return nullptr;
}

std::optional<std::string> JsonFields::String(absl::string_view name) {
  const Json* value = Find(name, {"string"});
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  WrongType(name, *value, "a string");
  return std::nullopt;
}

std::optional<bool> JsonFields::Bool(absl::string_view name) {
  const Json* value = Find(name, {"boolean"});
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  WrongType(name, *value, "true or false");
  return std::nullopt;
}

std::optional<float> JsonFields::Number(absl::string_view name) {
  const Json* value = Find(name, {"number"});
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    WrongType(name, *value, "a number");
    return std::nullopt;
  }
  const float number = static_cast<float>(value->get<double>());
  if (std::isfinite(number)) return number;
  WrongType(name, *value, "a number within the range of float32");
  return std::nullopt;
}

std::optional<int64_t> JsonFields::Integer(absl::string_view name, int64_t least, int64_t most) {
  if (recorder_ != nullptr) recorder_->OnRange(PathOf(name), least, most);
  const Json* value = Find(name, {"integer"});
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> number = WholeNumber(*value);
  if (number.has_value() && *number >= least && *number <= most) return number;
  WrongType(name, *value, absl::StrCat("an integer from ", least, " to ", most));
  return std::nullopt;
}

bool JsonFields::IsEmpty(absl::string_view name, const Json* value) {
  if (recorder_ != nullptr) recorder_->OnNotEmpty(PathOf(name));
  if (value == nullptr) return false;
  return value->is_string() ? value->get_ref<const std::string&>().empty()
                            : value->is_array() && value->empty();
}

std::vector<int32_t> JsonFields::Ids(absl::string_view name) {
  std::vector<int32_t> ids;
  if (recorder_ != nullptr) {
    const std::string element = absl::StrCat(PathOf(name), "[0]");
    recorder_->OnField(element, {"integer"}, FieldRecorder::Presence::kAbsent);
    recorder_->OnRange(element, 0, INT32_MAX);
  }
  const Json* list = Array(name);
  if (list == nullptr) return ids;
  ids.reserve(list->size());
  for (const Json& value : *list) {
    const std::optional<int64_t> id = WholeNumber(value);
    if (!id.has_value() || *id < 0 || *id > INT32_MAX) {
      Fail(absl::StrCat(name, "[", ids.size(), "]"),
           absl::StrCat("is ", Shown(value), "; it must be a token id"));
      return {};
    }
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

void JsonFields::NotServed(absl::string_view name, const Json& harmless, absl::string_view remedy) {
  if (recorder_ != nullptr) recorder_->OnNotServed(PathOf(name), harmless);
  const Json* value = Find(name);
  unserved_.emplace_back(name);
  if (value == nullptr || *value == harmless) return;
  Fail(name, absl::StrCat("is not supported yet", harmless.is_null() ? "" : " except for ",
                          harmless.is_null() ? "" : DumpJson(harmless), "; ", remedy));
}

std::vector<std::string> JsonFields::Served() const {
  std::vector<std::string> served;
  std::copy_if(asked_.begin(), asked_.end(), std::back_inserter(served), [&](const auto& name) {
    return std::find(unserved_.begin(), unserved_.end(), name) == unserved_.end();
  });
  return served;
}

absl::Status JsonFields::Done() const {
  if (!status_.ok()) return status_;
  for (const auto& [key, value] : object_.items()) {
    // Some clients send all fields of a message back, and set the unused ones to null.
    if (value.is_null()) continue;
    if (std::find(asked_.begin(), asked_.end(), key) != asked_.end()) continue;
    // The search for a similar name compares the name with all known names. So skip the search for
    // long names.
    constexpr size_t kLongestName = 64;
    const std::string hint =
        key.size() > kLongestName ? "" : NearestNameHint(key, Served(), /*prefix=*/path_);
    const std::string shown = base::Quoted(absl::StrCat(path_, key));
    return FieldError(shown.substr(1, shown.size() - 2),
                      absl::StrCat("is not a known field", hint));
  }
  return missing_;
}

}  // namespace tidepool::service
