// OutputEvents: adds the parts of a response (GenerateRequest.parse_output) to its messages.
#ifndef TIDEPOOL_SERVICE_FRONT_OUTPUT_EVENTS_H_
#define TIDEPOOL_SERVICE_FRONT_OUTPUT_EVENTS_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "service/tools/response_parser.h"
#include "service/tools/tool_schemas.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

using EventList = google::protobuf::RepeatedPtrField<v1::OutputEvent>;

// Appends an event. If it continues the last event of the list, the two are merged.
void AppendEvent(v1::OutputEvent event, EventList* events);

// Returns the tools of the request, or null if its response has no calls.
std::shared_ptr<const ToolSchemas> ToolsOf(const v1::GenerateRequest& request);

// Thread-compatible. The events depend only on the text of the response. So they are the same if
// the response moves to another worker or is read again.
class OutputEvents {
 public:
  // The names from which the ids of tool calls are made.
  struct Names {
    std::string principal, request_id;
  };

  OutputEvents(const ResponseFormat& format, Names names)
      : names_(std::move(names)), parser_(format) {}

  // Adds the events of the next message of the response.
  void AddTo(v1::GenerateResponse* message);
  // Reads the beginning of the response, which the client already has.
  void Skip(absl::string_view text);

 private:
  const Names names_;
  ResponseParser parser_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_OUTPUT_EVENTS_H_
