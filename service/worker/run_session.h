// RunSession: passes messages between one Worker.Run call and the engine. It contains no thread and
// no gRPC, so tests can drive it.
#ifndef TIDEPOOL_SERVICE_WORKER_RUN_SESSION_H_
#define TIDEPOOL_SERVICE_WORKER_RUN_SESSION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/engine.h"
#include "kernels/base/clock.h"
#include "service/base/event_loop.h"
#include "service/base/log_level.h"
#include "service/worker/migration_offer.h"
#include "service/worker/output_rules.h"
#include "service/worker/run_log_line.h"
#include "service/worker/run_reasoning.h"
#include "service/worker/worker_model.h"
#include "tidepool/worker/v1/worker.pb.h"

namespace tidepool::service {

// The stream that a RunSession writes to. Its functions are called on the loop.
class RunTransport {
 public:
  virtual ~RunTransport() = default;
  // Only one write is pending at a time. The next Write comes after RunSession::OnWritten.
  virtual void Write(worker::v1::RunResponse response) = 0;
  // Ends the stream. Called once, and nothing is called after it. No write is pending at that time,
  // unless the session was cancelled.
  virtual void Finish(absl::Status status) = 0;
};

// The objects that a RunSession uses. All of them must outlive the RunSession.
struct RunContext {
  const WorkerModel* model = nullptr;
  engine::Engine* engine = nullptr;
  Executor* loop = nullptr;
  const base::Clock* clock = nullptr;
  // Runs a task that calls ConstrainOutput on another thread, which depends on `work`. Each `line`
  // has its own queue of tasks, and the queues take turns. The loop must outlive the task.
  std::function<void(const std::string& line, OutputWork work, std::function<void()> task)>
      constrain;
};

// Every function must run on RunContext::loop. While a write is
// pending, the engine's stream merges the tokens that it produces. The credit that the front grants
// limits their number, so little memory is needed here.
class RunSession : public std::enable_shared_from_this<RunSession> {
 public:
  // `transport` may be destroyed after Finish or Abandon.
  RunSession(RunContext context, RunTransport* transport)
      : context_(std::move(context)),
        transport_(transport),
        reasoning_(context_.model),
        log_line_(context_.model) {}

  // Logs one line when the run ends. The line contains no text of the request. `log` must outlive
  // the session. Call this before the first request.
  void LogTo(const LogSink* log) { log_line_.LogTo(log); }

  void OnRequest(const worker::v1::RunRequest& request, absl::Duration deadline);
  // The peer sends no more messages. If it has not sent `start`, the session ends with an error.
  void OnRequestsEnd();
  void OnWritten();
  // The worker will end at `end`, on the monotonic clock. Asks the front to continue the response
  // on another worker, unless at its speed so far the response will be complete before `end`.
  void OfferMove(absl::Duration end);
  // The worker ends now. Ends the stream with UNAVAILABLE, after the pending write.
  void GiveUp();
  // The peer has disconnected or cancelled. Stops the sequence and ends the stream with CANCELLED.
  void Cancel();
  // The transport was destroyed, so nothing more is written to it.
  void Abandon();

 private:
  using NewStream = absl::StatusOr<std::unique_ptr<engine::Stream>>;

  void Start(const worker::v1::Start& start, absl::Duration deadline);
  // Compiles the grammar of the response and submits the request in the background. OnStream gets
  // the result on the loop.
  void SubmitConstrained(const worker::v1::Start& start, OutputWork work,
                         engine::GenerationRequest request);
  void OnStream(NewStream stream);
  void AddCredit(int64_t tokens);
  void Pump();
  void Write(worker::v1::RunResponse response);
  void Finish(absl::Status status);

  const RunContext context_;
  RunTransport* transport_;  // null after Finish
  std::unique_ptr<engine::Stream> stream_;
  bool started_ = false;       // `start` was received; stream_ may still be null
  int64_t early_credit_ = 0;   // credit that arrived before stream_ was set
  absl::Duration started_at_;  // on the monotonic clock
  int64_t max_tokens_ = 0;
  int32_t attempt_ = 0;
  int64_t position_ = 0;  // position of the next token to write
  RunReasoning reasoning_;
  MigrationOffer migration_;
  RunLogLine log_line_;
  bool giving_up_ = false;  // call GiveUp again after the pending write
  bool writing_ = false;
  bool last_written_ = false;  // the pending write contains the finish_reason
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_WORKER_RUN_SESSION_H_
