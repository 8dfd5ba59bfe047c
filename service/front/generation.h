// Generation: one Generate at the front, from its request to its last message. It takes the session
// lease, prepares the prompt, picks a worker, runs, appends to the log, then relays. If a worker
// fails, it continues on another one.
#ifndef TIDEPOOL_SERVICE_FRONT_GENERATION_H_
#define TIDEPOOL_SERVICE_FRONT_GENERATION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "service/auth/caller.h"
#include "service/base/trace_context.h"
#include "service/front/answer_queue.h"
#include "service/front/credit_window.h"
#include "service/front/generation_context.h"
#include "service/front/pick_worker.h"
#include "service/front/prompt_report.h"
#include "service/front/request_digests.h"
#include "service/front/session_turn.h"
#include "service/front/stream_numerics.h"
#include "service/front/stream_placement.h"
#include "service/front/worker_link.h"
#include "tidepool/v1/inference.pb.h"
#include "tidepool/worker/v1/worker.pb.h"

namespace tidepool::service {

// Receives the messages of a generation. Called on the loop.
class GenerationSink {
 public:
  virtual ~GenerationSink() = default;
  // One write at a time: the next comes after Generation::OnWritten.
  virtual void Write(v1::GenerateResponse response) = 0;
  // Called once. The sink may be destroyed then.
  virtual void Finish(absl::Status status) = 0;
};

// A client's handle of the response that its sink receives. Loop only.
class AnswerStream {
 public:
  virtual ~AnswerStream() = default;
  // The client has taken the last message that the sink wrote.
  virtual void OnWritten() = 0;
  // The client has disconnected. Its sink is finished with this status.
  virtual void Cancel(absl::Status why) = 0;
};

// Returns true if the worker or the connection failed, not the request: another worker may succeed.
bool IsWorkerFailure(const absl::Status& status);

struct GenerationInput {
  v1::GenerateRequest request;  // passed CheckGenerateRequest; request_id set
  // The request's id if the client set no request_id. Empty: a random one.
  std::string own_id = {};
  std::string principal;
  std::optional<Role> role = {};  // role of its principal; nullopt without authentication
  PrincipalLimits limits = {};    // limits of its principal
  TraceSpan span = {};
  absl::Duration deadline = absl::InfiniteDuration();  // on the monotonic clock
  // Result of CheckGenerateRequest. The check takes time proportional to the request's length, so
  // callers can do it on another thread. nullopt: the front's loop checks.
  std::optional<absl::Status> checked = {};
  // Same for DigestsOf the client's request.
  std::optional<RequestDigests> digests = {};
  // When the request was first sent, for the chat template. InfinitePast: now. In a session, the
  // template gets the session's creation time instead.
  absl::Time asked_at = absl::InfinitePast();
  // For a request with a request_id: the sink gets the whole response again, and a message ends at
  // resume_after. Not used for a turn of a session.
  bool replay = false;
  // An earlier attempt of this request exists, but its time is unknown.
  bool begun_before = false;
};

// Loop only. If the request resumes after some tokens, a message ends there. CreditWindow bounds
// the memory. Large because it connects the parts of a stream: each method is a step of the
// request, or passes news from one part to the others.
class Generation final : public AnswerStream,
                         public std::enable_shared_from_this<Generation>,
                         public SessionTurn::Listener,
                         public StreamPlacement::Owner {
 public:
  // `on_end` is called once, before the sink's Finish.
  Generation(const GenerationContext& context, GenerationInput input, GenerationSink* sink,
             std::function<void(const absl::Status&)> on_end);
  ~Generation() override;

  void Start();
  void OnWritten() override;
  // Stops the worker at once. A session keeps what was delivered.
  void Cancel(absl::Status why) override;
  // If it waits for this worker, which hangs as `why` describes, continues on another one.
  void LeaveHanging(const WorkerLink* link, absl::string_view why);

  const GenerationInput& input() const { return input_; }
  // The current worker. Empty if there is none yet.
  const std::string& worker() const { return placement_.worker().name; }
  int32_t attempts() const { return placement_.attempt() + 1; }
  int64_t prompt_tokens() const { return prepared_.token_ids_size(); }  // 0: unknown

 private:
  bool has_session() const { return input_.request.has_session_id(); }
  bool has_logged_turn() const { return has_session() && turn_->logged().has_value(); }

  void OnTurn(absl::Status status) override;
  void OnLogged() override;
  void OnTurnLost(absl::Status status) override;

  void Do(StreamStep step) override;
  // Includes the prompt tokens that the prompt report counts.
  int64_t told() const override {
    return prompt_report_.received() + static_cast<int64_t>(output_ids_.size());
  }
  PickRequest MakePick() const override;
  void End(absl::Status status) override;
  void OnMayResume() override { GrantCredit(); }
  std::weak_ptr<const void> Life() const override { return weak_from_this(); }

  void BeginTurn();
  // Checks the model name of the request against the session's model, once the model is known.
  absl::Status CheckSessionModel() const;
  void FindModel();
  void Prepare();
  void OnPrepared(int32_t attempt, absl::StatusOr<worker::v1::PrepareResponse> prepared);
  // Keeps the session's log within max_session_tokens. FAILED_PRECONDITION if it is full.
  absl::Status LimitSession();

  // Finds the text that the client already has. The client first gets the logged part of its turn.
  void FindReceivedText();
  // Uses the prompt in the log, even if the template would render the request differently today.
  void TakeLoggedPrompt();
  void Resume(const std::string& received_text);

  void Run();
  worker::v1::Start MakeStart() const;
  void OnResponse(int32_t attempt, worker::v1::RunResponse response);
  void OnRunEnd(int32_t attempt, absl::Status status, EndedBy by);
  // The worker drains: moves to another worker when one serves the model, and stays until then.
  void LeaveDrainingWorker();
  // Ends the run on the worker.
  void LeaveWorker();
  void AppendToLog(const v1::GenerateResponse& response);
  void SendNext();
  // Total number of tokens that the worker may report.
  int64_t CreditLimit() const;
  void GrantCredit();
  void NoteStandstill();

  const GenerationContext context_;
  const GenerationInput input_;
  GenerationSink* sink_;  // null after Finish
  std::function<void(const absl::Status&)> on_end_;

  std::shared_ptr<SessionTurn> turn_;  // null: without a session
  v1::Model model_;
  worker::v1::PrepareResponse prepared_;
  StreamPlacement placement_;
  StreamNumerics numerics_;
  uint64_t run_ = 0;  // result of NoteSent; 0: no run
  std::unique_ptr<RunCall> call_;

  PromptReport prompt_report_;
  int64_t granted_ = 0;  // tokens that the worker may report
  std::vector<int32_t> output_ids_;
  bool finish_received_ = false;
  AnswerQueue queue_;
  CreditWindow window_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_GENERATION_H_
