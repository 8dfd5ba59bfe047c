// FieldRecorder: the JSON Schema of a request's body, learnt from the code that reads it, so that
// what is documented is what is read.
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

  // From now on another body is parsed.
  void BeginBody() { ++body_; }
  enum class Presence : uint8_t { kThere, kAbsent };
  // A field of one of these types, or of any.
  void OnField(const std::string& path, JsonTypes types, Presence presence);
  void OnRange(const std::string& path, int64_t least, int64_t most);
  // A text or a list that must not be empty.
  void OnNotEmpty(const std::string& path);
  // Only this value and null are taken.
  void OnNotServed(const std::string& path, const Json& harmless);
  // It is needed, and absent. One that was absent from another body without this is not needed.
  void OnMissing(const std::string& path);

  // https://json-schema.org/draft/2020-12/schema. Objects whose fields were read take no others.
  Json Schema() const;
  // A body that has each object and a list of each kind that is known so far, empty.
  Json Probe() const;

 private:
  struct Node;
  Node* At(absl::string_view path);

  std::shared_ptr<Node> root_;
  int body_ = 0;
};

// Calls `parse` with bodies that lead it into each object that it reads.
Json BodySchema(const std::function<void(const Json& body, FieldRecorder* recorder)>& parse);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_FIELD_RECORDER_H_
