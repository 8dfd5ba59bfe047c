// JsonFields: reads the fields of one JSON object of a request. It keeps the first fault, so a
// reader can read all fields and check once at the end.
//
//   JsonFields fields(object, "");
//   if (auto value = fields.Number("temperature")) sampling->set_temperature(*value);
//   RETURN_IF_ERROR(fields.Done());  // also refuses fields that were never read
#ifndef TIDEPOOL_SERVICE_HTTP_JSON_FIELDS_H_
#define TIDEPOOL_SERVICE_HTTP_JSON_FIELDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "service/http/field_recorder.h"
#include "service/http/json.h"

namespace tidepool::service {

// Returns the value of an integer, or of a number without a fraction such as 5.0. Returns nullopt
// for anything else, or if an int64 cannot hold it.
std::optional<int64_t> WholeNumber(const Json& value);

// Thread-compatible. A null field counts as missing. Functions return nullopt or null if a field is
// missing or has the wrong type; a wrong type is also a fault.
class JsonFields {
 public:
  // `object` is a JSON object that outlives this object. `path` is the prefix of field names in
  // errors, such as "messages[0].". If `recorder` is set, it records each field that is read.
  JsonFields(const Json& object, std::string path, FieldRecorder* recorder = nullptr)
      : object_(object), path_(std::move(path)), recorder_(recorder) {}
  // Same for an object inside this one.
  JsonFields Inside(const Json& object, std::string path) const {
    return JsonFields(object, std::move(path), recorder_);
  }

  // Returns a field of any of these types, or of any type if there are none. The caller checks the
  // value.
  const Json* Find(absl::string_view name, JsonTypes types = {});
  const Json* Array(absl::string_view name);
  const Json* Object(absl::string_view name);
  std::optional<std::string> String(absl::string_view name);
  std::optional<bool> Bool(absl::string_view name);
  std::optional<float> Number(absl::string_view name);
  // Limits are inclusive. A number without a fraction, such as 5.0, is accepted.
  std::optional<int64_t> Integer(absl::string_view name, int64_t least, int64_t most);
  // True if a field that must not be empty is an empty string or array. `value` is the result of
  // Find. The caller reports the fault.
  bool IsEmpty(absl::string_view name, const Json* value);
  // Reads token ids.
  std::vector<int32_t> Ids(absl::string_view name);

  // A known field that is not supported: every value except null and `harmless` is an error.
  // `remedy` follows "; " in the error.
  void NotServed(absl::string_view name, const Json& harmless = Json(),
                 absl::string_view remedy = "leave it out");

  std::string PathOf(absl::string_view name) const;
  void Fail(absl::string_view name, absl::string_view complaint);
  void Fail(const absl::Status& status);

  // Like Fail, for a missing required field. If there is an unknown field, reports that instead: it
  // may be this one, misspelt.
  void Missing(absl::string_view name, absl::string_view complaint);

  // Names of supported fields that were read.
  std::vector<std::string> Served() const;

  // Returns the first fault, or an error if the object has a field that was never read.
  absl::Status Done() const;

 private:
  void WrongType(absl::string_view name, const Json& found, absl::string_view wanted);

  const Json& object_;
  const std::string path_;
  FieldRecorder* const recorder_;
  std::vector<std::string> asked_;
  std::vector<std::string> unserved_;  // unsupported ones among the known names
  absl::Status status_;
  absl::Status missing_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_JSON_FIELDS_H_
