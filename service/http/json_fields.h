// JsonFields: reads the fields of one JSON object of a request. It keeps the first error. So code
// can read all fields and check for an error once, at the end.
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

// Returns the value if it is an integer, or a number without a fraction such as 5.0. Returns
// nullopt for other values, and for values that an int64 cannot hold.
std::optional<int64_t> WholeNumber(const Json& value);

// Thread-compatible. A field that is null counts as missing. The functions return nullopt or null
// if the field is missing or has the wrong type. A wrong type is also an error.
class JsonFields {
 public:
  // `object` must outlive this object. `path` is written before field names in errors, for example
  // "messages[0].". If `recorder` is set, it records each field that is read.
  JsonFields(const Json& object, std::string path, FieldRecorder* recorder = nullptr)
      : object_(object), path_(std::move(path)), recorder_(recorder) {}
  // Returns a JsonFields for an object inside this object.
  JsonFields Inside(const Json& object, std::string path) const {
    return JsonFields(object, std::move(path), recorder_);
  }

  // Returns the field, which may have any type. `types` are only for the recorder: the types that
  // the caller accepts (empty: any type). The caller must check the type itself.
  const Json* Find(absl::string_view name, JsonTypes types = {});
  const Json* Array(absl::string_view name);
  const Json* Object(absl::string_view name);
  std::optional<std::string> String(absl::string_view name);
  std::optional<bool> Bool(absl::string_view name);
  std::optional<float> Number(absl::string_view name);
  // `least` and `most` are the smallest and the largest allowed value. A number without a fraction,
  // such as 5.0, is accepted.
  std::optional<int64_t> Integer(absl::string_view name, int64_t least, int64_t most);
  // Returns whether a field that must not be empty is an empty string or an empty array. `value` is
  // the result of Find. The caller must report the error.
  bool IsEmpty(absl::string_view name, const Json* value);
  // Reads an array of token ids.
  std::vector<int32_t> Ids(absl::string_view name);

  // For a field that is known but not supported: every value except null and `harmless` is an
  // error. The error's message ends with "; " and `remedy`.
  void NotServed(absl::string_view name, const Json& harmless = Json(),
                 absl::string_view remedy = "leave it out");

  std::string PathOf(absl::string_view name) const;
  void Fail(absl::string_view name, absl::string_view complaint);
  void Fail(const absl::Status& status);

  // Like Fail, for a required field that is missing. If the object has an unknown field, Done
  // reports the unknown field instead, because it may be a misspelt name of the required field.
  void Missing(absl::string_view name, absl::string_view complaint);

  // Returns the names of the supported fields that were read.
  std::vector<std::string> Served() const;

  // Returns the first error. If there is none, returns an error if the object has a field that was
  // never read.
  absl::Status Done() const;

 private:
  void WrongType(absl::string_view name, const Json& found, absl::string_view wanted);

  const Json& object_;
  const std::string path_;
  FieldRecorder* const recorder_;
  std::vector<std::string> asked_;
  std::vector<std::string> unserved_;  // known names that are not supported
  absl::Status status_;
  absl::Status missing_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_JSON_FIELDS_H_
