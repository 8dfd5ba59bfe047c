// RunSession: one Worker.Run between its stream of messages and the engine, without either's
// threads.
#ifndef TIDEPOOL_SERVICE_WORKER_RUN_SESSION_H_
#define TIDEPOOL_SERVICE_WORKER_RUN_SESSION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "engine/engine.h"
#include "kernels/base/clock.h"
#include "service/base/event_loop.h"
#include "service/base/log_level.h"
#include "service/base/trace_context.h"
#include "service/worker/worker_model.h"
#include "tidepool/worker/v1/worker.pb.h"

namespace tidepool::service {

// The stream that a RunSession writes to. Called on the loop.
class RunTransport {
 public:
  virtual ~RunTransport() = default;
  // One at a time: the next comes after RunSession::OnWritten.
  virtual void Write(worker::v1::RunResponse response) = 0;
  // Once, with no write outstanding unless the session was cancelled. Nothing is called after it.
  virtual void Finish(absl::Status status) = 0;
};

// Loop only: every function runs on the executor that it was made with. While a write is
// outstanding the engine's chunks collect in its stream, as one, so what waits here is bounded by
// the credit.
class RunSession : public std::enable_shared_from_this<RunSession> {
 public:
  // All outlive the session, save that the transport may go once Finish was called or after
  // Abandon.
  RunSession(const WorkerModel* model, engine::Engine* engine, Executor* loop,
             const base::Clock* clock, RunTransport* transport)
      : model_(model), engine_(engine), loop_(loop), clock_(clock), transport_(transport) {}

  // The log, which outlives the session, gets a line when the run ends, and nothing of what it is
  // about. Before the first request.
  void LogTo(const LogSink* log) { log_ = log; }

  void OnRequest(const worker::v1::RunRequest& request, absl::Duration deadline);
  // The peer sends nothing more; without a start there is nothing to run.
  void OnRequestsEnd();
  void OnWritten();
  // The worker ends at `end` (monotonic time). Asks the peer to continue elsewhere, unless the
  // response will end before that at its current pace.
  void OfferMove(absl::Duration end);
  // The worker ends now: the stream ends with UNAVAILABLE.
  void GiveUp();
  // The peer is gone or asked for the end: the sequence stops, and the stream ends with CANCELLED.
  void Cancel();
  // The transport is gone.
  void Abandon();

 private:
  void Start(const worker::v1::Start& start, absl::Duration deadline);
  bool EndsBefore(absl::Duration end) const;
  void Pump();
  void Write(worker::v1::RunResponse response);
  void Finish(absl::Status status);
  void LogEnd(const absl::Status& status) const;

  const WorkerModel* model_;
  engine::Engine* engine_;
  Executor* loop_;
  const base::Clock* clock_;
  const LogSink* log_ = nullptr;
  RunTransport* transport_;  // null once finished
  std::unique_ptr<engine::Stream> stream_;
  int32_t attempt_ = 0;
  absl::Duration started_at_;
  int64_t first_position_ = 0;
  int64_t position_ = 0;    // of the next token to write
  int64_t max_tokens_ = 0;  // of the whole answer
  std::optional<absl::Duration> worker_end_;
  bool move_due_ = false;   // to be written
  bool giving_up_ = false;  // once the write in flight is over
  // For the log.
  bool started_ = false;
  std::string request_id_;
  std::string principal_;
  TraceSpan span_;
  engine::Usage usage_;  // as of the last chunk
  bool writing_ = false;
  bool last_written_ = false;  // the write in flight has the finish
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_WORKER_RUN_SESSION_H_
