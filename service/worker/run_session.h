// RunSession: the logic of one Worker.Run between its message stream and the engine, without the
// threads of either.
#ifndef TIDEPOOL_SERVICE_WORKER_RUN_SESSION_H_
#define TIDEPOOL_SERVICE_WORKER_RUN_SESSION_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "engine/engine.h"
#include "kernels/base/clock.h"
#include "service/base/event_loop.h"
#include "service/base/log_level.h"
#include "service/worker/migration_offer.h"
#include "service/worker/run_log_line.h"
#include "service/worker/worker_model.h"
#include "tidepool/worker/v1/worker.pb.h"

namespace tidepool::service {

// The stream that a RunSession writes to. Called on the loop.
class RunTransport {
 public:
  virtual ~RunTransport() = default;
  // One write at a time: the next comes after RunSession::OnWritten.
  virtual void Write(worker::v1::RunResponse response) = 0;
  // Called once. No write is pending then, unless the session was cancelled. Nothing is called
  // after it.
  virtual void Finish(absl::Status status) = 0;
};

// Loop only: every function runs on the executor passed to the constructor. While a write is
// pending, the engine's chunks merge in its stream, so the credit limits what waits here.
class RunSession : public std::enable_shared_from_this<RunSession> {
 public:
  // All arguments must outlive the session. The transport may be destroyed after Finish or Abandon.
  RunSession(const WorkerModel* model, engine::Engine* engine, Executor* loop,
             const base::Clock* clock, RunTransport* transport)
      : model_(model),
        engine_(engine),
        loop_(loop),
        clock_(clock),
        transport_(transport),
        log_line_(model) {}

  // Logs one line when the run ends, without text of the request. `log` outlives the session. Call
  // it before the first request.
  void LogTo(const LogSink* log) { log_line_.LogTo(log); }

  void OnRequest(const worker::v1::RunRequest& request, absl::Duration deadline);
  // The peer sends no more messages. If it sent no start, the session ends.
  void OnRequestsEnd();
  void OnWritten();
  // The worker ends at `end` (monotonic time). Asks the front to continue the response on another
  // worker, unless it will finish before `end` at its current speed.
  void OfferMove(absl::Duration end);
  // The worker ends now: ends the stream with UNAVAILABLE.
  void GiveUp();
  // The peer disconnected or cancelled: stops the sequence and ends the stream with CANCELLED.
  void Cancel();
  // The transport was destroyed.
  void Abandon();

 private:
  void Start(const worker::v1::Start& start, absl::Duration deadline);
  void Pump();
  void Write(worker::v1::RunResponse response);
  void Finish(absl::Status status);

  const WorkerModel* model_;
  engine::Engine* engine_;
  Executor* loop_;
  const base::Clock* clock_;
  RunTransport* transport_;  // null after Finish
  std::unique_ptr<engine::Stream> stream_;
  int32_t attempt_ = 0;
  int64_t position_ = 0;  // position of the next token to write
  MigrationOffer migration_;
  RunLogLine log_line_;
  bool giving_up_ = false;  // give up after the pending write
  bool writing_ = false;
  bool last_written_ = false;  // the pending write has the finish
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_WORKER_RUN_SESSION_H_
