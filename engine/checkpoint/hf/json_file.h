// A JSON file of a Hugging Face directory, and its members read with their types checked.
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

// Parses a JSON object. INVALID_ARGUMENT "PATH: ...": no JSON, no object, nested deeper than 64, a
// key twice in one object, a string that is not UTF-8.
absl::StatusOr<Json> ParseJsonObject(const std::string& path, absl::string_view text);

// The members of one object. A member that is null counts as missing. Errors name file and key:
// INVALID_ARGUMENT for a value of another kind or out of range. Thread-compatible; `path` and
// `object` outlive it.
class JsonMembers {
 public:
  JsonMembers(const std::string& path, const Json& object) : path_(path), object_(object) {}

  absl::string_view path() const { return path_; }
  const Json* Find(absl::string_view key) const;
  bool Has(absl::string_view key) const { return Find(key) != nullptr; }

  absl::StatusOr<int64_t> Int(absl::string_view key, int64_t low, int64_t high) const;
  absl::StatusOr<int64_t> IntOr(absl::string_view key, int64_t fallback, int64_t low,
                                int64_t high) const;
  // Finite.
  absl::StatusOr<double> Float(absl::string_view key) const;
  absl::StatusOr<double> FloatOr(absl::string_view key, double fallback) const;
  absl::StatusOr<bool> BoolOr(absl::string_view key, bool fallback) const;
  absl::StatusOr<std::string> String(absl::string_view key) const;
  absl::StatusOr<std::string> StringOr(absl::string_view key, absl::string_view fallback) const;
  // An integer, or a list of them; empty where the key is missing.
  absl::StatusOr<std::vector<int64_t>> IntsOr(absl::string_view key) const;

  absl::Status Error(absl::string_view key, absl::string_view message) const;
  // UNIMPLEMENTED, for what is sound and not supported.
  absl::Status Unsupported(absl::string_view key, absl::string_view message) const;

  // The first key, in the order of the alphabet, that has a value other than null, false, "" and
  // empty, was never asked for and is not in `harmless`; empty: there is none.
  std::string FirstUnread(absl::Span<const absl::string_view> harmless) const;

 private:
  absl::StatusOr<const Json*> Require(absl::string_view key) const;

  const std::string& path_;
  const Json& object_;
  mutable std::set<std::string, std::less<>> read_;
};

// The value on one short line, for messages.
std::string Shown(const Json& value);

// INVALID_ARGUMENT "PATH: SUBJECT: MESSAGE" on one line.
absl::Status FileError(absl::string_view path, absl::string_view subject,
                       absl::string_view message);
// The same as UNIMPLEMENTED.
absl::Status FileUnsupported(absl::string_view path, absl::string_view subject,
                             absl::string_view message);

}  // namespace tidepool::engine::hf

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_HF_JSON_FILE_H_
