#include "engine/checkpoint/hf/json_file.h"

#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/gguf_parser.h"
#include "kernels/base/json_watch.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace tidepool::engine::hf {
absl::StatusOr<Json> ParseJsonObject(const std::string& path, absl::string_view text) {
  base::JsonWatch<Json> watch({.max_depth = 64});
  const Json json =
      Json::parse(text.begin(), text.end(), watch.callback(), /*allow_exceptions=*/false);
  if (!watch.fault().empty()) return FileError(path, "", watch.fault());
  if (json.is_discarded()) {
    return FileError(path, "", "not valid JSON, expected an object; download the file again");
  }
  if (!json.is_object()) return FileError(path, "", "not a JSON object, expected {...}");
  return json;
}

std::string Shown(const Json& value) {
  constexpr size_t kMaxBytes = 80;
  const std::string text =
      value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  if (text.size() <= kMaxBytes) return text;
  return absl::StrCat(text.substr(0, kMaxBytes), "...");
}

absl::Status FileError(absl::string_view path, absl::string_view subject,
                       absl::string_view message) {
  return GgufError(path, subject, message);
}

absl::Status FileUnsupported(absl::string_view path, absl::string_view subject,
                             absl::string_view message) {
  return absl::UnimplementedError(FileError(path, subject, message).message());
}

absl::Status JsonMembers::Error(absl::string_view key, absl::string_view message) const {
  return FileError(path_, absl::StrCat(prefix_, key), message);
}

absl::Status JsonMembers::Unsupported(absl::string_view key, absl::string_view message) const {
  return FileUnsupported(path_, absl::StrCat(prefix_, key), message);
}

const Json* JsonMembers::Find(absl::string_view key) const {
  read_.emplace(key);
  const auto found = object_.find(std::string(key));
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

bool JsonMembers::IsNull(absl::string_view key) const {
  const auto found = object_.find(std::string(key));
  return found != object_.end() && found->is_null();
}

absl::StatusOr<const Json*> JsonMembers::Require(absl::string_view key) const {
  const Json* value = Find(key);
  if (value == nullptr) return Error(key, "missing, expected this key");
  return value;
}

absl::StatusOr<int64_t> JsonMembers::Int(absl::string_view key, int64_t low, int64_t high) const {
  ASSIGN_OR_RETURN(const Json* value, Require(key));
  const bool fits =
      value->is_number_integer() && (!value->is_number_unsigned() ||
                                     value->get<uint64_t>() <= std::numeric_limits<int64_t>::max());
  if (!fits || value->get<int64_t>() < low || value->get<int64_t>() > high) {
    const std::string expected =
        low == high ? absl::StrCat(low) : absl::StrCat("an integer of ", low, " to ", high);
    return Error(key, absl::StrCat(Shown(*value), ", expected ", expected));
  }
  return value->get<int64_t>();
}

absl::StatusOr<int64_t> JsonMembers::IntOr(absl::string_view key, int64_t fallback, int64_t low,
                                           int64_t high) const {
  return Has(key) ? Int(key, low, high) : fallback;
}

absl::StatusOr<double> JsonMembers::Float(absl::string_view key) const {
  ASSIGN_OR_RETURN(const Json* value, Require(key));
  if (!value->is_number() || !std::isfinite(value->get<double>())) {
    return Error(key, absl::StrCat(Shown(*value), ", expected a finite number"));
  }
  return value->get<double>();
}

absl::StatusOr<double> JsonMembers::FloatOr(absl::string_view key, double fallback) const {
  return Has(key) ? Float(key) : fallback;
}

absl::StatusOr<bool> JsonMembers::BoolOr(absl::string_view key, bool fallback) const {
  const Json* value = Find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) {
    return Error(key, absl::StrCat(Shown(*value), ", expected true or false"));
  }
  return value->get<bool>();
}

absl::StatusOr<std::string> JsonMembers::String(absl::string_view key) const {
  ASSIGN_OR_RETURN(const Json* value, Require(key));
  if (!value->is_string()) return Error(key, absl::StrCat(Shown(*value), ", expected a string"));
  return value->get<std::string>();
}

absl::StatusOr<std::string> JsonMembers::StringOr(absl::string_view key,
                                                  absl::string_view fallback) const {
  if (!Has(key)) return std::string(fallback);
  return String(key);
}

absl::StatusOr<std::vector<int64_t>> JsonMembers::IntsOr(absl::string_view key) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::vector<int64_t>();
  const Json list = value->is_array() ? *value : Json::array({*value});
  std::vector<int64_t> numbers;
  for (const Json& element : list) {
    if (!element.is_number_integer()) {
      return Error(key, absl::StrCat(Shown(*value), ", expected an integer or a list of them"));
    }
    numbers.push_back(element.get<int64_t>());
  }
  return numbers;
}

std::string JsonMembers::FirstUnread(absl::Span<const absl::string_view> harmless) const {
  for (const auto& [key, value] : object_.items()) {
    const bool off = value.is_null() || value == Json(false) || value == Json(0) ||
                     (value.is_structured() && value.empty()) || value == Json("");
    if (off || key.empty() || key[0] == '_' || read_.contains(key)) continue;
    bool known = false;
    for (const absl::string_view name : harmless) known |= name == key;
    if (!known) return key;
  }
  return "";
}

}  // namespace tidepool::engine::hf
