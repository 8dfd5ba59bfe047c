// For files that read or write JSON.
#ifndef TIDEPOOL_TOOLS_PRECOMPILED_JSON_H_
#define TIDEPOOL_TOOLS_PRECOMPILED_JSON_H_

#include <nlohmann/json.hpp>

#include "tools/precompiled/abseil.h"

#endif  // TIDEPOOL_TOOLS_PRECOMPILED_JSON_H_
