// JsonFields: the fields of one JSON object of a request, read one by one. The first fault stays,
// so that a reader reads straight on and asks once at the end.
//
//   JsonFields fields(object, "");
//   if (auto value = fields.Number("temperature")) sampling->set_temperature(*value);
//   RETURN_IF_ERROR(fields.Done());  // also names a field that nobody asked for
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

// The value of an integer, or of a number without a fraction such as 5.0. Nothing: it is neither,
// or an int64 cannot hold it.
std::optional<int64_t> WholeNumber(const Json& value);

// Thread-compatible. A field that is null counts as missing. Functions return nothing for a field
// that is missing or has the wrong type; the latter is a fault.
class JsonFields {
 public:
  // `object` is a JSON object that outlives this. `path` is the prefix of names in errors, such as
  // "messages[0].".
  // `recorder` learns of each field that is read; null: nobody does.
  JsonFields(const Json& object, std::string path, FieldRecorder* recorder = nullptr)
      : object_(object), path_(std::move(path)), recorder_(recorder) {}
  // The same of an object inside this one.
  JsonFields Inside(const Json& object, std::string path) const {
    return JsonFields(object, std::move(path), recorder_);
  }

  // Of any of these types, which the caller checks; none: of any type.
  const Json* Find(absl::string_view name, JsonTypes types = {});
  const Json* Array(absl::string_view name);
  const Json* Object(absl::string_view name);
  std::optional<std::string> String(absl::string_view name);
  std::optional<bool> Bool(absl::string_view name);
  std::optional<float> Number(absl::string_view name);
  // Inclusive limits. A number without a fraction is one, as 5.0 is.
  std::optional<int64_t> Integer(absl::string_view name, int64_t least, int64_t most);
  // Whether a field that must not be empty is an empty string or array. `value` is the result of
  // Find. The caller reports the fault.
  bool IsEmpty(absl::string_view name, const Json* value);
  // Token ids.
  std::vector<int32_t> Ids(absl::string_view name);

  // A known field that is not supported: every value except null and `harmless` is an error.
  // `remedy` follows "; " in the error.
  void NotServed(absl::string_view name, const Json& harmless = Json(),
                 absl::string_view remedy = "leave it out");

  std::string PathOf(absl::string_view name) const;
  void Fail(absl::string_view name, absl::string_view complaint);
  void Fail(const absl::Status& status);

  // As Fail, of a field that is needed: a name that is not known comes first, for it may be this
  // one's with an error in it.
  void Missing(absl::string_view name, absl::string_view complaint);

  // Names that were asked for and are served.
  std::vector<std::string> Served() const;

  // The first fault: of a read, or a field that no function was asked for.
  absl::Status Done() const;

 private:
  void WrongType(absl::string_view name, const Json& found, absl::string_view wanted);

  const Json& object_;
  const std::string path_;
  FieldRecorder* const recorder_;
  std::vector<std::string> asked_;
  std::vector<std::string> unserved_;  // of them
  absl::Status status_;
  absl::Status missing_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_JSON_FIELDS_H_
