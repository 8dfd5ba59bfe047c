// Log: lines for the operator, with time and level.
#ifndef TIDEPOOL_SERVICE_CLI_LOG_H_
#define TIDEPOOL_SERVICE_CLI_LOG_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "kernels/base/mutex.h"
#include "service/base/log_level.h"
#include "service/cli/line_writer.h"

namespace spdlog {
class formatter;
}  // namespace spdlog

namespace tidepool::service {

// Formats a line without time and level: `line key=value ...`. Values with blanks, quotes or
// unprintable characters are quoted and escaped as in JSON.
std::string LogText(absl::string_view line, LogFields fields);
// Formats a line and its fields as members of a JSON object: "message", then the fields.
std::string LogMembers(absl::string_view line, LogFields fields);

// Returns the warning that `count` lines are missing, with time and newline.
std::string DroppedLinesNote(LogFormat format, int64_t count);

// Thread-safe. There is no global logger: each user of the log gets it as an argument. Logging
// never blocks: LineWriter drops lines if the reader is too slow.
class Log {
 public:
  // Drops lines below level `least`. `writer` outlives the log.
  Log(LogLevel least, LogFormat format, LineWriter* writer);
  ~Log();

  void SetLevel(LogLevel least) { least_ = least; }

  void Write(LogLevel level, absl::string_view line, LogFields fields = {});
  void Info(absl::string_view line) { Write(LogLevel::kInfo, line); }
  // Returns a sink that passes lines to this log. The log must outlive it.
  LogSink Sink();

 private:
  const LogFormat format_;
  LineWriter* const writer_;
  std::atomic<LogLevel> least_;
  base::Mutex mutex_;
  const std::unique_ptr<spdlog::formatter> formatter_ TIDEPOOL_GUARDED_BY(mutex_);
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_LOG_H_
