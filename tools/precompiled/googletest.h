// For tests.
#ifndef TIDEPOOL_TOOLS_PRECOMPILED_GOOGLETEST_H_
#define TIDEPOOL_TOOLS_PRECOMPILED_GOOGLETEST_H_

#include <gtest/gtest.h>

#include "tools/precompiled/abseil.h"

#endif  // TIDEPOOL_TOOLS_PRECOMPILED_GOOGLETEST_H_
