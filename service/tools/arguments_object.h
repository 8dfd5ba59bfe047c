// ArgumentsObject: the arguments of an earlier call as an object, which chat templates need.
#ifndef TIDEPOOL_SERVICE_TOOLS_ARGUMENTS_OBJECT_H_
#define TIDEPOOL_SERVICE_TOOLS_ARGUMENTS_OBJECT_H_

#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace tidepool::service {

// Returns the object whose JSON text the arguments are. An empty text is an empty object. Nothing
// is an error:
// - If the text is the beginning of an object, because max_tokens cut the response, open strings,
//   lists and objects end where the text ends. An unfinished key, number or word, and a key without
//   a value, are left out.
// - Any other text becomes the value of the only key, "arguments".
nlohmann::ordered_json ArgumentsObject(absl::string_view text);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_TOOLS_ARGUMENTS_OBJECT_H_
