// Generation: one Generate at the front, from its request to its last message: session lease,
// Prepare, pick a worker, Run, append to the log, then relay; and at another worker when one fails.
#ifndef TIDEPOOL_SERVICE_FRONT_GENERATION_H_
#define TIDEPOOL_SERVICE_FRONT_GENERATION_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "service/auth/caller.h"
#include "service/event_loop.h"
#include "service/front/attempt_record.h"
#include "service/front/failover.h"
#include "service/front/logged_turn.h"
#include "service/front/prompt_report.h"
#include "service/front/request_digests.h"
#include "service/front/worker_set.h"
#include "service/store/session_store.h"
#include "service/trace_context.h"
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

// What generations share; all of it outlives them.
struct GenerationContext {
  Executor* loop = nullptr;
  const base::Clock* clock = nullptr;
  WorkerSet* workers = nullptr;
  SessionStore* store = nullptr;
  Failover* failover = nullptr;
  int64_t max_session_tokens = 0;  // of a session's log; 0: what the model's context holds
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
  Span span = {};
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

// Loop only. Where the request resumes after so many tokens, a message ends there. Memory is
// bounded: a worker makes at most kWindowTokens beyond what the sink has taken, and fewer where so
// many would be longer than kWindowBytes, as far as the tokens before them tell.
class Generation final : public AnswerStream, public std::enable_shared_from_this<Generation> {
 public:
  static constexpr int64_t kWindowTokens = 256;
  static constexpr int64_t kWindowBytes = 256 << 10;

  // `on_end` is called once, before the sink's Finish.
  Generation(const GenerationContext& context, GenerationInput input, GenerationSink* sink,
             std::function<void(const absl::Status&)> on_end);

  void Start();
  void OnWritten() override;
  // The worker stops at once, and a session keeps what was delivered.
  void Cancel(absl::Status why) override;
  // Goes on at another worker if it waits for this one, which does `why` instead of answering.
  void LeaveHanging(const WorkerLink* link, absl::string_view why);

  const GenerationInput& input() const { return input_; }
  const std::string& worker() const { return worker_.name; }  // the latest; empty: none yet
  int32_t attempts() const { return attempt_ + 1; }
  int64_t prompt_tokens() const { return prepared_.token_ids_size(); }  // 0: not known yet

 private:
  // A message on its way to the client.
  struct Outgoing {
    v1::GenerateResponse response;
    bool logged = false;
  };

  bool has_session() const { return input_.request.has_session_id(); }
  // Tokens that workers told of, those of the prompt that its report counts too.
  int64_t told() const {
    return prompt_report_.received() + static_cast<int64_t>(output_ids_.size());
  }

  void BeginTurn();
  void OnTurn(absl::StatusOr<OpenTurn> turn);
  absl::Status CheckTurn() const;
  // The name that the request gives its session's model, once the model is known.
  absl::Status CheckSessionModel() const;
  // What stands in the log of a turn that went on elsewhere before goes to the client first.
  void FindReceivedText();
  // The prompt is the log's, whatever the template makes of the request today.
  void TakeLoggedPrompt();
  void Resume(const std::string& received_text);
  void KeepLease();
  void FindModel();
  void Prepare();
  // What the chat template is told.
  void TellTime(worker::v1::PrepareRequest* request) const;
  void OnPrepared(int32_t attempt, absl::StatusOr<worker::v1::PrepareResponse> prepared);
  // Keeps the session's log under max_session_tokens. FAILED_PRECONDITION: it is full.
  absl::Status LimitSession();
  PickRequest MakePick() const;
  void Run();
  // worker_ makes the tokens that come now.
  void NoteNumerics();
  worker::v1::Start MakeStart() const;
  void OnResponse(int32_t attempt, worker::v1::RunResponse response);
  void OnRunEnd(int32_t attempt, absl::Status status, EndedBy by);
  // worker_ drains: this goes on at another one as soon as one serves the model, and here until
  // then.
  void LeaveDrainingWorker();
  // Goes on at another worker at once: nothing has failed.
  void Migrate();
  // worker_ failed what `step` asked of it: `step` is tried again elsewhere, or this ends.
  void Retry(absl::Status status, EndedBy by, void (Generation::*step)());
  // Goes on when it is its turn, with nothing counted.
  void ComeBack(const absl::Status& status);
  // What has begun was accepted: it waits, for a while, until a worker has room for it.
  void WaitForRoom(absl::Status status);
  void GiveAttemptUp();
  // Tries `step` when it has waited a little longer than the last time.
  void BackOff(void (Generation::*step)());
  // Ends it if its prompt was convicted, its attempts are used up, or its deadline has passed.
  bool EndIfConvicted();
  // Of the prompt, where `step` would run it now.
  Suspicion SuspicionAt(void (Generation::*step)()) const;
  // Picks worker_ for `step` and begins an attempt there. False: `step` is called again later, or
  // this has ended.
  bool TakeWorker(void (Generation::*step)());
  // Whether `step` has to wait at this worker: for streams that run there, before it is tried there
  // by itself, or for the one that is.
  bool WaitsAt(const PickedWorker& worker, void (Generation::*step)());
  bool tried_alone() const { return ticket_.held() && kind_ == Resubmissions::Kind::kAlone; }
  // Calls `step` again, in line if a worker has failed it.
  void Try(void (Generation::*step)());
  // It is this one's turn in line.
  void OnTurnInLine(void (Generation::*step)());
  bool AnotherHasRoom() const;
  bool IsExhausted();
  void Later(absl::Duration wait, void (Generation::*then)(void (Generation::*)()),
             void (Generation::*step)());
  // Tries `step` the first time that it is called, unless something else was tried meanwhile.
  std::function<void()> ResumeOnce(void (Generation::*step)());
  // Calls `step` when it is this stream's turn, which may need calm.
  void Resubmit(void (Generation::*step)());
  // Calls `step` when the workers changed, or ends with `reason` when that takes too long.
  void WaitForWorkers(void (Generation::*step)(), absl::Status reason);
  // When to wait for workers no longer, on the monotonic clock.
  absl::Duration PatienceEnd();
  // What failed before has nothing to do with what comes now.
  void BeginAttempts();
  void OnTokensMade(int64_t count);
  void AppendToLog(const v1::GenerateResponse& response);
  void OnLogged(absl::Status status, int64_t length);
  void CloseTurn();
  void SendNext();
  // Of this answer, beyond what the sink has taken.
  int64_t WindowTokens() const;
  // Tokens that the worker may tell of, all in all.
  int64_t CreditLimit() const;
  void GrantCredit();
  void NoteStandstill();
  // The run at worker_ is over.
  void LeaveWorker();
  void End(absl::Status status);

  const GenerationContext context_;
  const GenerationInput input_;
  GenerationSink* sink_;  // null once finished
  std::function<void(const absl::Status&)> on_end_;

  // The session's turn.
  OpenTurn turn_;
  std::optional<LoggedTurn> logged_turn_;  // the request's, if it comes again
  bool lease_held_ = false;
  bool turn_begun_ = false;     // its first append was sent
  bool turn_finished_ = false;  // its last append was sent
  bool log_failed_ = false;
  int64_t sent_length_ = 0;    // of the log, with all appends that were sent
  int64_t logged_length_ = 0;  // of the log, with those that were acknowledged

  v1::Model model_;
  worker::v1::PrepareResponse prepared_;
  bool waited_ = false;  // for workers, since one last answered
  absl::Duration give_up_;
  int aways_ = 0;  // tries that no worker took, since one last answered
  int64_t waits_ = 0;

  uint64_t prompt_digest_ = 0;

  // The attempt that runs.
  int32_t attempt_ = 0;
  AttemptRecord record_;
  absl::Status last_failure_;     // of a worker
  CrashEvidence::Attempt trial_;  // what it does at worker_
  Resubmissions::Ticket ticket_;  // held while it is on its way to another worker
  Resubmissions::Kind kind_ = Resubmissions::Kind::kUsual;  // the ticket's
  std::optional<absl::Duration> calm_since_;  // it waits to be tried by itself since then
  PickedWorker worker_;
  void (Generation::*asked_)() = nullptr;  // the step whose answer is awaited of worker_
  uint64_t run_ = 0;                       // NoteSent's; 0: none runs
  std::unique_ptr<RunCall> call_;
  std::vector<std::string> failed_workers_;
  std::string lost_worker_;  // of them, the one that this has left last, and gone on nowhere since
  std::string numerics_id_;  // of the worker that made the first tokens
  bool numerics_changed_ = false;
  bool numerics_logged_ = false;  // the log has it that they changed

  PromptReport prompt_report_;
  int64_t granted_ = 0;  // tokens that the worker may tell of
  std::vector<int32_t> output_ids_;
  bool finish_received_ = false;
  std::deque<Outgoing> queue_;
  int64_t untaken_tokens_ = 0;  // received, and not yet taken by the client
  int64_t token_bytes_ = 0;     // of a token in the message whose tokens were the longest
  bool writing_ = false;
  int64_t writing_tokens_ = 0;
  bool writing_last_ = false;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_GENERATION_H_
