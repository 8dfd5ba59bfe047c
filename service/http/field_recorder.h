// FieldRecorder: derives the JSON Schema of a request's body by running the code that parses the
// body. So the documentation always matches the parser.
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

// Type names of JSON Schema: "string", "number", "integer", "boolean", "array", "object".
using JsonTypes = std::initializer_list<const char*>;

// Thread-compatible. Paths have the format of JsonFields, such as "messages[0].role".
class FieldRecorder {
 public:
  FieldRecorder();

  // Call it before the parser reads the next body.
  void BeginBody() { ++body_; }
  enum class Presence : uint8_t { kThere, kAbsent };
  // The parser has read a field. `types` are the types that it accepts. An empty list means any
  // type.
  void OnField(const std::string& path, JsonTypes types, Presence presence);
  void OnRange(const std::string& path, int64_t least, int64_t most);
  // The field is a string or an array that must not be empty.
  void OnNotEmpty(const std::string& path);
  // The field accepts only null and the value `harmless`.
  void OnNotServed(const std::string& path, const Json& harmless);
  // The parser reported that a required field is missing. The schema marks a field as required if
  // this call came for every body without the field.
  void OnMissing(const std::string& path);

  // Returns the schema (https://json-schema.org/draft/2020-12/schema). If fields of an object were
  // read, the schema allows no other fields in that object.
  Json Schema() const;
  // Returns a body that contains an empty instance of each object and array that was read so far.
  Json Probe() const;

 private:
  struct Node;
  Node* At(absl::string_view path);

  std::shared_ptr<Node> root_;
  int body_ = 0;
};

// Returns the schema of the bodies that `parse` reads. Calls `parse` repeatedly, each time with a
// body that has more objects, until the parser has read all of them.
Json BodySchema(const std::function<void(const Json& body, FieldRecorder* recorder)>& parse);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_FIELD_RECORDER_H_
