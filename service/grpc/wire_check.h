// Explains why protobuf could not parse a message.
#ifndef TIDEPOOL_SERVICE_GRPC_WIRE_CHECK_H_
#define TIDEPOOL_SERVICE_GRPC_WIRE_CHECK_H_

#include <google/protobuf/descriptor.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tidepool::service {

// INVALID_ARGUMENT names the first string field that is invalid UTF-8, or says that the message is
// damaged. Requires: `bytes` could not be parsed as this type.
absl::Status ExplainBadMessage(absl::string_view bytes, const google::protobuf::Descriptor& type);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_GRPC_WIRE_CHECK_H_
