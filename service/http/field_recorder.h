// FieldRecorder: builds the JSON Schema of a request's body by running the code that parses it, so
// that the documentation always matches the parser.
//
//   Json schema = BodySchema(
//       [](const Json& body, FieldRecorder* recorder) { ParseChatRequest(body, recorder); });
#ifndef TIDEPOOL_SERVICE_HTTP_FIELD_RECORDER_H_
#define TIDEPOOL_SERVICE_HTTP_FIELD_RECORDER_H_

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "service/http/json.h"

namespace tidepool::service {

// Types of JSON Schema: "string", "number", "integer", "boolean", "array", "object".
using JsonTypes = std::initializer_list<const char*>;

// Thread-compatible. Paths are those of JsonFields, such as "messages[0].role".
class FieldRecorder {
 public:
  FieldRecorder();

  // Another body is parsed from now on.
  void BeginBody() { ++body_; }
  enum class Presence : uint8_t { kThere, kAbsent };
  // A field with one of these types, or any type if there are none.
  void OnField(const std::string& path, JsonTypes types, Presence presence);
  void OnRange(const std::string& path, int64_t least, int64_t most);
  // A string or array that must not be empty.
  void OnNotEmpty(const std::string& path);
  // Only this value and null are accepted.
  void OnNotServed(const std::string& path, const Json& harmless);
  // The field is required, and missing. A field that was missing from another body without this
  // call is optional.
  void OnMissing(const std::string& path);

  // Returns the schema (https://json-schema.org/draft/2020-12/schema). Objects whose fields were
  // read accept no other fields.
  Json Schema() const;
  // Returns a body with an empty instance of each object and array that is known so far.
  Json Probe() const;

 private:
  struct Node;
  Node* At(absl::string_view path);

  std::shared_ptr<Node> root_;
  int body_ = 0;
};

// Calls `parse` repeatedly, with bodies that make it read every object.
Json BodySchema(const std::function<void(const Json& body, FieldRecorder* recorder)>& parse);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_FIELD_RECORDER_H_
