// RequestLog: writes one log line when a request ends.
#ifndef TIDEPOOL_SERVICE_FRONT_REQUEST_LOG_H_
#define TIDEPOOL_SERVICE_FRONT_REQUEST_LOG_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "service/base/log_level.h"
#include "service/front/generation.h"
#include "service/front/request_metrics.h"

namespace tidepool::service {

// Use it on the loop only. Lines begin with "request ended". docs/operations.md describes their
// fields. Unless prompt logging is enabled, a line contains no text that a client has sent to the
// model, not even in an error message.
class RequestLog {
 public:
  explicit RequestLog(LogSink log) : log_(std::move(log)) {}

  void SetPrompts(PromptLogging prompts) { prompts_ = prompts; }

  // Returns how many lines of the whole log could not be written.
  int64_t dropped_lines() const { return log_.dropped_lines(); }

  // Logs a request that had begun and has ended. `model` is the model's name, as workers report it.
  void Ended(const Generation& generation, const std::string& model, const RequestSummary& summary,
             const absl::Status& status) const;
  // Logs a request that was refused before it began.
  void Refused(const GenerationInput& input, const absl::Status& status) const;

 private:
  class Line;

  const LogSink log_;
  PromptLogging prompts_ = PromptLogging::kNever;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_REQUEST_LOG_H_
