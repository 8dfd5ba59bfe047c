// Generation: one Generate at the front, from its request to its last message: session lease,
// Prepare, pick a worker, Run, append to the log, then relay; and at another worker when one fails.
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

// Where a generation's messages go. Called on the loop.
class GenerationSink {
 public:
  virtual ~GenerationSink() = default;
  // One at a time: the next comes after Generation::OnWritten.
  virtual void Write(v1::GenerateResponse response) = 0;
  // Once; the sink may go then.
  virtual void Finish(absl::Status status) = 0;
};

// A client's hold on the answer that comes to its sink. Loop only.
class AnswerStream {
 public:
  virtual ~AnswerStream() = default;
  // The sink's client has taken the last message.
  virtual void OnWritten() = 0;
  // The client is gone: its sink is told this end.
  virtual void Cancel(absl::Status why) = 0;
};

// The worker or the way to it failed, not the request: another worker can do better.
bool IsWorkerFailure(const absl::Status& status);

struct GenerationInput {
  v1::GenerateRequest request;  // passed CheckGenerateRequest; request_id set
  // What a request is called whose client gave it no request_id; empty: drawn.
  std::string own_id = {};
  std::string principal;
  std::optional<Role> role = {};  // its principal's; none where nobody is authenticated
  PrincipalLimits limits = {};    // its principal's
  TraceSpan span = {};
  absl::Duration deadline = absl::InfiniteDuration();  // of the monotonic clock
  // What CheckGenerateRequest says of the request, which takes as long as that is long: for whoever
  // has another thread than the front's loop. None: it is asked there.
  std::optional<absl::Status> checked = {};
  // The same of DigestsOf what the client sent.
  std::optional<RequestDigests> digests = {};
  // When it was asked first, which its chat template is told; InfinitePast: now. In a session that
  // is when the session was made.
  absl::Time asked_at = absl::InfinitePast();
  // With a request_id: its sink gets the whole response again, and a message ends at resume_after.
  // Not for a session's turn.
  bool replay = false;
  // An answer of it has begun before, and when is not known.
  bool begun_before = false;
};

// Loop only. If the request resumes after some tokens, a message ends there. Memory is bounded by
// CreditWindow.
// Large because it joins the parts of a stream: each method is a step of the request, or what one
// part has to tell the others.
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
  // The worker stops at once, and a session keeps what was delivered.
  void Cancel(absl::Status why) override;
  // Goes on at another worker if it waits for this one, which does `why` instead of answering.
  void LeaveHanging(const WorkerLink* link, absl::string_view why);

  const GenerationInput& input() const { return input_; }
  // The latest; empty: none yet.
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
  // Those of the prompt that its report counts are included.
  int64_t told() const override {
    return prompt_report_.received() + static_cast<int64_t>(output_ids_.size());
  }
  PickRequest MakePick() const override;
  void End(absl::Status status) override;
  void OnMayResume() override { GrantCredit(); }
  std::weak_ptr<const void> Life() const override { return weak_from_this(); }

  void BeginTurn();
  // The name that the request gives its session's model, once the model is known.
  absl::Status CheckSessionModel() const;
  void FindModel();
  void Prepare();
  void OnPrepared(int32_t attempt, absl::StatusOr<worker::v1::PrepareResponse> prepared);
  // It is prepared, and the worker did not die of that.
  void BeginRun();
  // Keeps the session's log under max_session_tokens. FAILED_PRECONDITION: it is full.
  absl::Status LimitSession();

  // The client first gets what the log has of its turn.
  void FindReceivedText();
  // The prompt is the log's, whatever the template makes of the request today.
  void TakeLoggedPrompt();
  void Resume(const std::string& received_text);

  void Run();
  worker::v1::Start MakeStart() const;
  void OnResponse(int32_t attempt, worker::v1::RunResponse response);
  void OnRunEnd(int32_t attempt, absl::Status status, EndedBy by);
  // The worker drains: this moves to another one as soon as one serves the model, and stays until
  // then.
  void LeaveDrainingWorker();
  // The run is over.
  void LeaveWorker();
  void AppendToLog(const v1::GenerateResponse& response);
  void SendNext();
  // Tokens that the worker may report in total.
  int64_t CreditLimit() const;
  void GrantCredit();
  void NoteStandstill();

  const GenerationContext context_;
  const GenerationInput input_;
  GenerationSink* sink_;  // null once finished
  std::function<void(const absl::Status&)> on_end_;

  std::shared_ptr<SessionTurn> turn_;  // null: without a session
  v1::Model model_;
  worker::v1::PrepareResponse prepared_;
  StreamPlacement placement_;
  StreamNumerics numerics_;
  uint64_t run_ = 0;  // NoteSent's; 0: none runs
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
