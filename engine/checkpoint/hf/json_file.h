// Parses JSON files of a Hugging Face directory and reads their members with type checks.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_HF_JSON_FILE_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_HF_JSON_FILE_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "nlohmann/json.hpp"

namespace tidepool::engine::hf {

using Json = nlohmann::json;

// Parses a JSON object. Returns INVALID_ARGUMENT "PATH: ..." if the text is not JSON, is not an
// object, is nested deeper than 64 levels, repeats a key in one object, or is not UTF-8.
absl::StatusOr<Json> ParseJsonObject(const std::string& path, absl::string_view text);

// Thread-compatible. Reads the members of one object. A null member counts as missing. Errors name
// the file and the key. If the object is inside another one, `prefix` comes before the key, for
// example "text_config.". Returns INVALID_ARGUMENT if a value has the wrong type or is out of
// range. `path` and `object` must outlive the JsonMembers.
class JsonMembers {
 public:
  JsonMembers(const std::string& path, const Json& object, absl::string_view prefix = "")
      : path_(path), object_(object), prefix_(prefix) {}

  const std::string& path() const { return path_; }
  const std::string& prefix() const { return prefix_; }
  const Json* Find(absl::string_view key) const;
  bool Has(absl::string_view key) const { return Find(key) != nullptr; }
  bool IsNull(absl::string_view key) const;

  absl::StatusOr<int64_t> Int(absl::string_view key, int64_t low, int64_t high) const;
  absl::StatusOr<int64_t> IntOr(absl::string_view key, int64_t fallback, int64_t low,
                                int64_t high) const;
  // Accepts only finite numbers.
  absl::StatusOr<double> Float(absl::string_view key) const;
  absl::StatusOr<double> FloatOr(absl::string_view key, double fallback) const;
  absl::StatusOr<bool> BoolOr(absl::string_view key, bool fallback) const;
  absl::StatusOr<std::string> String(absl::string_view key) const;
  absl::StatusOr<std::string> StringOr(absl::string_view key, absl::string_view fallback) const;
  // Reads an integer or a list of integers. Returns an empty list if the key is missing.
  absl::StatusOr<std::vector<int64_t>> IntsOr(absl::string_view key) const;

  absl::Status Error(absl::string_view key, absl::string_view message) const;
  // Returns UNIMPLEMENTED, the error for a valid value that is not supported.
  absl::Status Unsupported(absl::string_view key, absl::string_view message) const;

  // Returns the first key, in alphabetical order, that was never read and is not in `harmless`.
  // Skips keys that begin with "_", and values that are null, false, 0, "" or empty. Returns "" if
  // there is no such key.
  std::string FirstUnread(absl::Span<const absl::string_view> harmless) const;

 private:
  absl::StatusOr<const Json*> Require(absl::string_view key) const;

  const std::string& path_;
  const Json& object_;
  const std::string prefix_;
  mutable std::set<std::string, std::less<>> read_;
};

// Formats the value on one short line, for error messages.
std::string Shown(const Json& value);

// Returns INVALID_ARGUMENT with the one-line message "PATH: SUBJECT: MESSAGE".
absl::Status FileError(absl::string_view path, absl::string_view subject,
                       absl::string_view message);
// Returns UNIMPLEMENTED with the same message.
absl::Status FileUnsupported(absl::string_view path, absl::string_view subject,
                             absl::string_view message);

}  // namespace tidepool::engine::hf

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_HF_JSON_FILE_H_
