// Log levels, fields and sinks. Components use them to write log lines.
#ifndef TIDEPOOL_SERVICE_BASE_LOG_LEVEL_H_
#define TIDEPOOL_SERVICE_BASE_LOG_LEVEL_H_

#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tidepool::service {

// kError and kOff suppress the lower levels. An error that ends the process is always printed to
// stderr, whatever the level is.
enum class LogLevel : uint8_t {
  kDebug,  // for example runs of a worker whose front is in the same process
  kInfo,   // normal events and the end of each request
  kWarn,   // problems that do not stop the process
  kError,
  kOff,
};

// Format of log lines: text for people, or one JSON object per line.
enum class LogFormat : uint8_t { kText, kJson };

// Whether log lines may contain text that clients have sent to the model.
enum class PromptLogging : uint8_t { kNever, kAlways };

// The key and the value of a field in a log line. Keys are in lower case, with underscores. Keys of
// durations end in _seconds.
struct LogField {
  absl::string_view name;
  std::variant<absl::string_view, int64_t, double> value;
};
using LogFields = absl::Span<const LogField>;

// Where log lines are written. A LogSink itself is thread-compatible. Its call operator is as
// thread-safe as `write`.
//
//   log(LogLevel::kInfo, "request ended", {{"request_id", id}, {"output_tokens", int64_t{3}}});
class LogSink {
 public:
  LogSink() = default;  // discards all lines
  // `write` takes (LogLevel, absl::string_view line) and, if it uses fields, also LogFields.
  // `dropped_lines` returns the number of lost lines. The constructor is implicit, so that lambdas
  // can be passed as sinks.
  template <typename Write>
  requires(!std::is_same_v<std::decay_t<Write>, LogSink>)
      LogSink(Write write, std::function<int64_t()> dropped_lines = {})  // NOLINT
      : dropped_lines_(std::move(dropped_lines)) {
    if constexpr (std::is_invocable_v<Write&, LogLevel, absl::string_view, LogFields>) {
      write_ = std::move(write);
    } else {
      write_ = [write = std::move(write)](LogLevel level, absl::string_view line, LogFields) {
        write(level, line);
      };
    }
  }

  void operator()(LogLevel level, absl::string_view line, LogFields fields = {}) const {
    if (write_) write_(level, line, fields);
  }
  explicit operator bool() const { return write_ != nullptr; }

  // Returns the number of lines that were lost since the process started, or 0 if the sink does not
  // count them.
  int64_t dropped_lines() const { return dropped_lines_ ? dropped_lines_() : 0; }

 private:
  std::function<int64_t()> dropped_lines_;
  std::function<void(LogLevel level, absl::string_view line, LogFields fields)> write_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_BASE_LOG_LEVEL_H_
