// Lines for the operator, as whoever has something to say hands them on.
#ifndef TIDEPOOL_SERVICE_LOG_LEVEL_H_
#define TIDEPOOL_SERVICE_LOG_LEVEL_H_

#include <cstdint>
#include <functional>

#include "absl/strings/string_view.h"

namespace tidepool::service {

// kError and kOff are for whoever wants fewer lines: what ends a process is told as its error, not
// as a line.
enum class LogLevel : uint8_t {
  kDebug,  // each run's worker
  kInfo,   // what comes and goes as it should
  kWarn,   // trouble that is survived
  kError,
  kOff,
};

using LogSink = std::function<void(LogLevel level, absl::string_view line)>;

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_LOG_LEVEL_H_
