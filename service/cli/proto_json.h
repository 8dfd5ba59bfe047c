// Converts messages to JSON for --json. Uses the proto's field names, plain numbers, and defaults
// for unset fields, so that every key is present.
#ifndef TIDEPOOL_SERVICE_CLI_PROTO_JSON_H_
#define TIDEPOOL_SERVICE_CLI_PROTO_JSON_H_

#include <google/protobuf/message.h>

#include "service/cli/console.h"

namespace tidepool::service {

// Unset singular message fields become null. Requires: no map and no bytes fields.
Json ToJson(const google::protobuf::Message& message);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_PROTO_JSON_H_
