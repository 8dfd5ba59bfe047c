// ArgumentsObject: the arguments of an earlier call as an object, which chat templates need.
#ifndef TIDEPOOL_SERVICE_TOOLS_ARGUMENTS_OBJECT_H_
#define TIDEPOOL_SERVICE_TOOLS_ARGUMENTS_OBJECT_H_

#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace tidepool::service {

// Parses the JSON text of the arguments. An empty text gives an empty object. No text is an error:
// - If max_tokens has truncated the response, the text may be only the beginning of an object. Then
//   open strings, lists and objects end where the text ends. An unfinished key or word, a key
//   without a value, and the unfinished end of a number are left out.
// - Any other text gives an object with one key, "arguments", whose value is the text.
nlohmann::ordered_json ArgumentsObject(absl::string_view text);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_TOOLS_ARGUMENTS_OBJECT_H_
