// Generation: one Generate call at the front, from its request to its last message. It takes the
// lease of the session, prepares the prompt, and runs the request on a worker. It appends each
// message to the session's log, and then sends the message to the client. If a worker fails, the
// generation continues on another one. IsWorkerFailure says which errors count as such a failure,
// for example a damaged expert.
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
#include "service/front/credit_window.h"
#include "service/front/generation_context.h"
#include "service/front/output_events.h"
#include "service/front/pick_worker.h"
#include "service/front/prompt_report.h"
#include "service/front/request_digests.h"
#include "service/front/response_queue.h"
#include "service/front/session_turn.h"
#include "service/front/stream_numerics.h"
#include "service/front/stream_placement.h"
#include "service/front/worker_link.h"
#include "tidepool/v1/inference.pb.h"
#include "tidepool/worker/v1/worker.pb.h"

namespace tidepool::service {

// Receives the messages of a generation. Its functions are called on the loop.
class GenerationSink {
 public:
  virtual ~GenerationSink() = default;
  // Only one write is pending at a time. The next Write comes after ResponseStream::OnWritten.
  virtual void Write(v1::GenerateResponse response) = 0;
  // The generation has ended. This is the last call, so the sink may be destroyed.
  virtual void Finish(absl::Status status) = 0;
};

// Represents a client that receives a response through its sink. Use it on the loop only.
class ResponseStream {
 public:
  virtual ~ResponseStream() = default;
  // The client has received the last message that was written to the sink.
  virtual void OnWritten() = 0;
  // The client has disconnected. The sink is finished with this status.
  virtual void Cancel(absl::Status why) = 0;
};

// Returns whether the worker or the connection has failed. If so, another worker may succeed.
// Returns false if the request itself was wrong.
bool IsWorkerFailure(const absl::Status& status);

struct GenerationInput {
  v1::GenerateRequest request;  // has passed CheckGenerateRequest; request_id is set
  // The id for a request whose request_id the client did not set. Empty: use a random id.
  std::string own_id = {};
  std::string principal;
  std::optional<Role> role = {};  // the principal's role; nullopt without authentication
  PrincipalLimits limits = {};    // the principal's limits
  TraceSpan span = {};
  absl::Duration deadline = absl::InfiniteDuration();  // on the monotonic clock
  // The result of CheckGenerateRequest. This check takes time in proportion to the request's
  // length, so a caller may run it on another thread. nullopt: the front's loop runs the check.
  std::optional<absl::Status> checked = {};
  // The result of DigestsOf for the client's request. nullopt: the front's loop computes it.
  std::optional<RequestDigests> digests = {};
  // The result of ToolsOf for the client's request. It takes time in proportion to the size of the
  // tools, so a caller may compute it on another thread. Null: the front's loop computes it.
  std::shared_ptr<const ToolSchemas> tools = {};
  // When the request was first sent. The chat template gets this time. InfinitePast means now. In a
  // session, the template gets the time when the session was created instead.
  absl::Time asked_at = absl::InfinitePast();
  // Only for a request with a request_id that is not a turn of a session. The sink gets the whole
  // response again, from its beginning. One of its messages ends exactly at resume_after.
  bool replay = false;
  // The request was sent before, but the time is not known.
  bool begun_before = false;
};

// Use it on the loop only. If the request resumes after some tokens, a message ends exactly there.
// CreditWindow limits the memory for messages.
//
// Large because it connects the parts of a stream. Each function is a step of the request, or
// passes information from one part to the others.
class Generation final : public ResponseStream,
                         public std::enable_shared_from_this<Generation>,
                         public SessionTurn::Listener,
                         public StreamPlacement::Owner {
 public:
  // `on_end` is called once, before GenerationSink::Finish.
  Generation(const GenerationContext& context, GenerationInput input, GenerationSink* sink,
             std::function<void(const absl::Status&)> on_end);
  ~Generation() override;

  void Start();
  void OnWritten() override;
  // Stops the worker at once. In a session, the part that is already logged stays in the log.
  void Cancel(absl::Status why) override;
  // If the stream waits for the worker `link`, moves it to another worker, unless all others would
  // ignore fields of the request. `why` describes how this worker hangs.
  void LeaveHanging(const WorkerLink* link, absl::string_view why);

  const GenerationInput& input() const { return input_; }
  // Returns the name of the current worker, or "" if there is none yet.
  const std::string& worker() const { return placement_.worker().name; }
  int32_t attempts() const { return placement_.attempt() + 1; }
  int64_t prompt_tokens() const { return prepared_.token_ids_size(); }  // 0: not known yet

 private:
  bool has_session() const { return input_.request.has_session_id(); }
  bool has_logged_turn() const { return has_session() && turn_->logged().has_value(); }

  void OnTurn(absl::Status status) override;
  void OnLogged() override;
  void OnTurnLost(absl::Status status) override;

  void Do(StreamStep step) override;
  // Prompt tokens in a prompt report are included.
  int64_t reported() const override {
    return prompt_report_.received() + static_cast<int64_t>(output_ids_.size());
  }
  PickRequest MakePick() const override;
  void End(absl::Status status) override;
  void OnMayResume() override { GrantCredit(); }
  std::weak_ptr<const void> Life() const override { return weak_from_this(); }

  void BeginTurn();
  // Call it when the session's model is known. Checks that the model name in the request means the
  // same model.
  absl::Status CheckSessionModel() const;
  void FindModel();
  void Prepare();
  void OnPrepared(int32_t attempt, absl::StatusOr<worker::v1::PrepareResponse> prepared);
  // If the client asks for the parts of the response (parse_output), begins to add them to the
  // messages.
  void BeginEvents();
  // Returns the minimum value of `understands` with which a worker supports all fields of this
  // request. Returns 0 if all workers support all fields.
  int32_t Needs() const;
  // Limits the length of the session's log to max_session_tokens. FAILED_PRECONDITION if the log
  // has no room left.
  absl::Status LimitSession();

  // Finds the text of the tokens that the client already has (resume_after). After that, the client
  // gets the rest of the logged part of its turn, and then new tokens.
  void FindReceivedText();
  // Uses the prompt in the log, because the template may now render the request differently.
  void TakeLoggedPrompt();
  void Resume(const std::string& received_text);

  void Run();
  worker::v1::Start MakeStart() const;
  void OnResponse(int32_t attempt, worker::v1::RunResponse response);
  void OnRunEnd(int32_t attempt, absl::Status status, EndedBy by);
  // The worker drains. If another worker serves the model, moves there. If not, stays on this
  // worker until one does.
  void LeaveDrainingWorker();
  // Ends the run on the current worker.
  void LeaveWorker();
  void AppendToLog(const v1::GenerateResponse& response);
  void SendNext();
  // Returns the total number of tokens that the worker may report.
  int64_t CreditLimit() const;
  void GrantCredit();
  void NoteStandstill();

  const GenerationContext context_;
  const GenerationInput input_;
  GenerationSink* sink_;  // null after Finish
  std::function<void(const absl::Status&)> on_end_;

  std::shared_ptr<SessionTurn> turn_;  // null if the request has no session
  v1::Model model_;
  worker::v1::PrepareResponse prepared_;
  // the result of NeededToUnderstand; nullopt: not computed yet
  mutable std::optional<int32_t> needs_;
  StreamPlacement placement_;
  StreamNumerics numerics_;
  uint64_t run_ = 0;  // the number that NoteSent returned; 0: no run
  std::unique_ptr<RunCall> call_;

  PromptReport prompt_report_;
  std::optional<OutputEvents> events_;  // set with parse_output, when the prompt is prepared
  int64_t granted_ = 0;                 // total number of tokens that the worker may report
  std::vector<int32_t> output_ids_;
  bool finish_received_ = false;
  ResponseQueue queue_;
  CreditWindow window_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_GENERATION_H_
