// Headers that most files include. Reading them takes longer than compiling what an average file
// adds. More headers than these make the precompiled form larger, and then all files take longer to
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
