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

// A line as Log writes it behind time and level: `line key=value ...`. Values that hold blanks,
// quotes or anything unprintable stand in quotes, escaped as in JSON.
std::string LogText(absl::string_view line, LogFields fields);
// The same as the members of a JSON object: "message", then the fields.
std::string LogMembers(absl::string_view line, LogFields fields);

// The line that stands where `count` lines are missing: a warning, with time and newline.
std::string DroppedLinesNote(LogFormat format, int64_t count);

// Thread-safe. An object that is passed around: there is no global logger. Whoever logs never
// waits: the LineWriter drops what nobody reads.
class Log {
 public:
  // Lines below `least` are dropped. `writer` outlives the log.
  Log(LogLevel least, LogFormat format, LineWriter* writer);
  ~Log();

  void SetLevel(LogLevel least) { least_ = least; }

  void Write(LogLevel level, absl::string_view line, LogFields fields = {});
  void Info(absl::string_view line) { Write(LogLevel::kInfo, line); }
  // What hands lines on to this log, which outlives it.
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
