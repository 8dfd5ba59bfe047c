// Messages as JSON for --json: the proto's own field names, numbers as numbers, unset fields with
// their defaults, so that a script finds every key.
#ifndef TIDEPOOL_SERVICE_CLI_PROTO_JSON_H_
#define TIDEPOOL_SERVICE_CLI_PROTO_JSON_H_

#include <google/protobuf/message.h>

#include "service/cli/console.h"

namespace tidepool::service {

// Singular message fields that are unset are null. Requires: no map and no bytes fields.
Json ToJson(const google::protobuf::Message& message);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_PROTO_JSON_H_
