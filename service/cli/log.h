// Log: lines for the operator, on stderr, with time and level.
#ifndef TIDEPOOL_SERVICE_CLI_LOG_H_
#define TIDEPOOL_SERVICE_CLI_LOG_H_

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "service/log_level.h"

namespace spdlog {
class async_logger;
namespace details {
class thread_pool;
}
}  // namespace spdlog

namespace tidepool::service {

// A line as Log writes it behind time and level: `line key=value ...`. Values that hold blanks,
// quotes or anything unprintable stand in quotes, escaped as in JSON.
std::string LogText(absl::string_view line, LogFields fields);
// The same as the members of a JSON object: "message", then the fields.
std::string LogMembers(absl::string_view line, LogFields fields);

// Thread-safe. An object that is passed around: there is no global logger. Lines are written by a
// thread of its own, so that nobody waits for a reader of stderr; when that one is more than
// kMostWaiting lines behind, the oldest are dropped, and the last line says how many.
class Log {
 public:
  static constexpr int kMostWaiting = 2048;

  // Lines below `least` are dropped. The thread inherits which signals are blocked.
  Log(LogLevel least, LogFormat format);
  // Returns when all lines are written.
  ~Log();

  void SetLevel(LogLevel least);

  void Write(LogLevel level, absl::string_view line, LogFields fields = {});
  void Info(absl::string_view line) { Write(LogLevel::kInfo, line); }
  // What hands lines on to this log, which outlives it.
  LogSink Sink();

 private:
  const LogFormat format_;
  std::shared_ptr<spdlog::details::thread_pool> pool_;
  std::shared_ptr<spdlog::async_logger> logger_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_LOG_H_
