// RunLogLine: the log line that a worker writes when a Worker.Run call ends.
#ifndef TIDEPOOL_SERVICE_WORKER_RUN_LOG_LINE_H_
#define TIDEPOOL_SERVICE_WORKER_RUN_LOG_LINE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "engine/engine.h"
#include "service/base/log_level.h"
#include "service/base/trace_context.h"
#include "service/worker/worker_model.h"
#include "tidepool/worker/v1/worker.pb.h"

namespace tidepool::service {

// Thread-compatible. The line contains no text of the request.
class RunLogLine {
 public:
  // `model` outlives this object.
  explicit RunLogLine(const WorkerModel* model) : model_(model) {}

  // Sets the log. If this function was not called, no line is written. `log` must outlive this
  // object.
  void LogTo(const LogSink* log) { log_ = log; }

  void OnStart(const worker::v1::Start& start);
  // `usage` is the run's usage so far.
  void OnUsage(const engine::Usage& usage) { usage_ = usage; }
  // Writes the line. If OnStart was not called, the run has not started, and nothing is written.
  void OnEnd(const absl::Status& status) const;

 private:
  const WorkerModel* model_;
  const LogSink* log_ = nullptr;
  bool started_ = false;
  std::string request_id_;
  std::string principal_;
  int64_t attempt_ = 0;
  TraceSpan span_;
  engine::Usage usage_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_WORKER_RUN_LOG_LINE_H_
