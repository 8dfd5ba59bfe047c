// RequestLog: the line that each request's end leaves in the operator's log.
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

// Loop only. Lines say "request ended"; docs/operations.md tells their fields. Nothing that a
// client wrote to the model is in them unless that is asked for, not even as an error quotes it.
class RequestLog {
 public:
  explicit RequestLog(LogSink log) : log_(std::move(log)) {}

  void SetPrompts(PromptLogging prompts) { prompts_ = prompts; }

  // Of the log as a whole: lines that could not be written.
  int64_t dropped_lines() const { return log_.dropped_lines(); }

  // One that began; `model` as its worker names it.
  void Ended(const Generation& generation, const std::string& model, const RequestSummary& summary,
             const absl::Status& status) const;
  // One that never did.
  void Refused(const GenerationInput& input, const absl::Status& status) const;

 private:
  class Line;

  const LogSink log_;
  PromptLogging prompts_ = PromptLogging::kNever;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_REQUEST_LOG_H_
