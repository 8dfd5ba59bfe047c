// Log: lines for the operator, on stderr, with time and level.
#ifndef TIDEPOOL_SERVICE_CLI_LOG_H_
#define TIDEPOOL_SERVICE_CLI_LOG_H_

#include <memory>

#include "absl/strings/string_view.h"
#include "service/log_level.h"

namespace spdlog {
class logger;
}

namespace tidepool::service {

// Thread-safe. An object that is passed around: there is no global logger.
class Log {
 public:
  // Lines below `least` are dropped.
  explicit Log(LogLevel least);
  ~Log();

  void Write(LogLevel level, absl::string_view line);
  void Info(absl::string_view line) { Write(LogLevel::kInfo, line); }

 private:
  std::unique_ptr<spdlog::logger> logger_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_LOG_H_
