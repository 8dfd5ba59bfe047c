// Lines for the operator, as whoever has something to say hands them on.
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

// kError and kOff suppress lines. A fatal error of the process is printed as its error, not as a
// log line.
enum class LogLevel : uint8_t {
  kDebug,  // runs of a worker in the same process
  kInfo,   // normal events, and the end of each request
  kWarn,   // problems that do not stop the process
  kError,
  kOff,
};

// How lines are written: for people, or each as one JSON object.
enum class LogFormat : uint8_t { kText, kJson };

// Whether lines may hold what clients wrote to the model.
enum class PromptLogging : uint8_t { kNever, kAlways };

// A fact of a line, for programs to find: names are lower case with underscores, and those of
// durations end in _seconds.
struct LogField {
  absl::string_view name;
  std::variant<absl::string_view, int64_t, double> value;
};
using LogFields = absl::Span<const LogField>;

// Where lines go. Thread-compatible to hold; as thread-safe to call as what it was made of.
//
//   log(LogLevel::kInfo, "request ended", {{"request_id", id}, {"output_tokens", int64_t{3}}});
class LogSink {
 public:
  LogSink() = default;  // lines go nowhere
  // `write` takes (LogLevel, absl::string_view line, LogFields), or has no use for the fields.
  // Implicit: lambdas are passed as sinks. `dropped_lines` counts those that were lost on the way.
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

  // Since the process started; 0 for a sink that does not count.
  int64_t dropped_lines() const { return dropped_lines_ ? dropped_lines_() : 0; }

 private:
  std::function<int64_t()> dropped_lines_;
  std::function<void(LogLevel level, absl::string_view line, LogFields fields)> write_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_BASE_LOG_LEVEL_H_
