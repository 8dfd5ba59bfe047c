// Headers that most files include. Parsing them takes longer than compiling the rest of an average
// file. With more headers, the precompiled form would be larger, and all files would take longer to
// load it.
#ifndef TIDEPOOL_TOOLS_PRECOMPILED_ABSEIL_H_
#define TIDEPOOL_TOOLS_PRECOMPILED_ABSEIL_H_

#include <absl/container/flat_hash_map.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#endif  // TIDEPOOL_TOOLS_PRECOMPILED_ABSEIL_H_
