// For tests that read or write JSON.
#ifndef TIDEPOOL_TOOLS_PRECOMPILED_GOOGLETEST_JSON_H_
#define TIDEPOOL_TOOLS_PRECOMPILED_GOOGLETEST_JSON_H_

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tools/precompiled/abseil.h"

#endif  // TIDEPOOL_TOOLS_PRECOMPILED_GOOGLETEST_JSON_H_
