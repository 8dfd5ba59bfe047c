// Log levels, fields and sinks: how components pass log lines to the operator.
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

// kError and kOff suppress lower levels. A fatal error is printed to stderr, not logged.
enum class LogLevel : uint8_t {
  kDebug,  // a worker's runs when the front is in the same process
  kInfo,   // normal events, and the end of each request
  kWarn,   // problems that do not stop the process
  kError,
  kOff,
};

// Format of log lines: text for people, or one JSON object per line.
enum class LogFormat : uint8_t { kText, kJson };

// Whether log lines may contain text that clients sent to the model.
enum class PromptLogging : uint8_t { kNever, kAlways };

// A key and value of a line. Keys are lower case with underscores, and keys of durations end in
// _seconds.
struct LogField {
  absl::string_view name;
  std::variant<absl::string_view, int64_t, double> value;
};
using LogFields = absl::Span<const LogField>;

// The destination of log lines. Thread-compatible itself. A call is as thread-safe as `write`.
//
//   log(LogLevel::kInfo, "request ended", {{"request_id", id}, {"output_tokens", int64_t{3}}});
class LogSink {
 public:
  LogSink() = default;  // discards all lines
  // `write` takes (LogLevel, absl::string_view line), and LogFields if it uses them. Implicit, so
  // that lambdas can be passed as sinks. `dropped_lines` returns the number of lost lines.
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

  // Lost lines since the process started. 0 if the sink does not count them.
  int64_t dropped_lines() const { return dropped_lines_ ? dropped_lines_() : 0; }

 private:
  std::function<int64_t()> dropped_lines_;
  std::function<void(LogLevel level, absl::string_view line, LogFields fields)> write_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_BASE_LOG_LEVEL_H_
