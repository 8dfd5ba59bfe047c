// RequestRecords: everything that a front records about its requests: metrics, usage, totals and
// log lines.
#ifndef TIDEPOOL_SERVICE_FRONT_REQUEST_RECORDS_H_
#define TIDEPOOL_SERVICE_FRONT_REQUEST_RECORDS_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "service/base/log_level.h"
#include "service/front/generation.h"
#include "service/front/request_log.h"
#include "service/front/request_metrics.h"

namespace tidepool::service {

// Use it on the loop only.
class RequestRecords {
 public:
  // `log` is called on the loop.
  explicit RequestRecords(LogSink log) : log_(std::move(log)) {}

  RequestLog* log() { return &log_; }
  RequestMetricsMap* metrics() { return &metrics_; }
  const PrincipalUsageMap& principal_usage() const { return principal_usage_; }
  int64_t total() const { return total_; }
  int64_t failed() const { return failed_; }

  void OnReceived() { ++total_; }
  // The received request has several choices. OnReceived is called for the request and for each
  // choice. So this call subtracts the request itself.
  void OnSplit() { --total_; }
  // A received request was refused. `model` is the model's name, as workers report it, or "" if the
  // model is unknown.
  void OnRefused(const GenerationInput& input, const std::string& model,
                 const absl::Status& status);
  // A request that had begun has ended.
  void OnEnded(const Generation& generation, const MeasuredSink& measured, const absl::Status& end);

 private:
  RequestLog log_;
  RequestMetricsMap metrics_;
  PrincipalUsageMap principal_usage_;
  int64_t total_ = 0;
  int64_t failed_ = 0;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_REQUEST_RECORDS_H_
