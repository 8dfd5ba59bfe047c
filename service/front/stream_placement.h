// StreamPlacement: which worker runs a stream, and what happens between two workers: the stream
// backs off, waits in line, waits for a worker, or is tried alone. stream_state.h has the states.
#ifndef TIDEPOOL_SERVICE_FRONT_STREAM_PLACEMENT_H_
#define TIDEPOOL_SERVICE_FRONT_STREAM_PLACEMENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "service/front/crash_evidence.h"
#include "service/front/failover_queue.h"
#include "service/front/generation_context.h"
#include "service/front/pick_worker.h"
#include "service/front/poisoned_prompts.h"
#include "service/front/retry_state.h"
#include "service/front/stream_state.h"
#include "service/front/worker_link.h"
#include "service/front/worker_set.h"

namespace tidepool::service {

// The steps of a stream that need a worker.
enum class StreamStep : uint8_t { kFindModel, kPrepare, kFindReceivedText, kRun };

// Loop only.
// Large because back-off, the queue, trials and waiting exclude each other: each ends the others.
class StreamPlacement {
 public:
  // The stream, which has the placement as a member.
  class Owner {
   public:
    virtual ~Owner() = default;
    // Does the step now. May end the stream.
    virtual void Do(StreamStep step) = 0;
    // Tokens that workers reported so far.
    virtual int64_t told() const = 0;
    // The request to pick a worker by, without the additions of earlier attempts.
    virtual PickRequest MakePick() const = 0;
    virtual void End(absl::Status status) = 0;
    // MayResume may now return true.
    virtual void OnMayResume() = 0;
    // Locked while a callback runs.
    virtual std::weak_ptr<const void> Life() const = 0;
  };

  // `deadline` is a time of the monotonic clock. If session_id is empty, there is no session.
  StreamPlacement(Owner* owner, const GenerationContext& context, std::string session_id,
                  absl::Duration deadline)
      : owner_(owner), context_(context), session_id_(std::move(session_id)), deadline_(deadline) {}

  // Call it before all steps except kFindModel.
  void SetPrompt(const PromptId& prompt, std::string model_digest) {
    prompt_ = prompt;
    found_at_ = context_.clock->Monotonic();
    model_ = std::move(model_digest);
  }

  // Does the step at once. If a worker has failed the stream, or its prompt is suspected of
  // crashes, waits in line first.
  void Try(StreamStep step);
  // Picks worker() for `step` and begins an attempt there. Returns false if the step is done later,
  // or if the stream has ended.
  bool TakeWorker(StreamStep step);
  // Same for a step that cannot crash a worker: begins no attempt.
  bool TakeAnyWorker(StreamStep step);
  // Does the step when the workers changed; ends the stream with `reason` if that takes too long.
  void WaitForWorkers(StreamStep step, absl::Status reason);

  // worker() failed `step`: tries the step again on another worker, or ends the stream.
  void Retry(absl::Status status, EndedBy by, StreamStep step);
  // worker() was lost while it had nothing to compute for this stream: does kRun again when it is
  // the stream's turn. This does not count as a failure.
  void ComeBack(const absl::Status& status);
  // worker() is full: kRun waits, for a limited time, until a worker has room.
  void WaitForRoom(absl::Status status);
  bool AnotherHasRoom() const;
  // worker() drains: kRun moves to another worker at once. Nothing has failed.
  void Migrate();

  // worker() answered a unary step.
  void OnAnswered() { asked_.reset(); }
  // worker() prepared the prompt. If the prompt is tried alone, worker() also runs it alone.
  void OnPrepared();
  // Forgets earlier failures, because they do not concern the next step.
  void BeginAttempts();
  void OnTokens(int64_t count);
  // Whether worker() may get credit now. If this stream was paused when another stream's trial
  // began there, and could crash the worker, it must not compute during the trial. It waits until
  // the trial ends, for a limited time. Then OnMayResume is called.
  bool MayResume();
  // The worker got credit and may compute again. It had none, because the client read nothing.
  void OnCredit() { trial_.Resume(); }
  void OnStandstill();
  // The last token has arrived.
  void OnFinished();
  void End();

  // The worker picked last. Its name is empty before the first pick.
  const PickedWorker& worker() const { return worker_; }
  int32_t attempt() const { return attempt_; }
  // The unary step that worker() has not answered yet, if any.
  std::optional<StreamStep> asked() const { return asked_; }
  // Number of tokens that this attempt must be able to generate even if the client reads nothing.
  int64_t ProofTokens() const;
  bool ended() const { return state_ == StreamState::kEnded; }

 private:
  // How long the stream has waited for workers since one last responded.
  struct Patience {
    bool begun = false;
    absl::Duration end;
    int aways = 0;  // tries that no worker accepted
  };

  // A paused stream waits for the end of another stream's trial.
  struct Hold {
    int32_t attempt = 0;
    absl::Duration end;  // at the latest
    bool asks = false;   // OnMayResume will be called
  };

  PickRequest Pick() const;
  // The worker's process, as of now.
  WorkerSighting Sight() const;
  void GoTo(StreamState next);
  bool tried_alone() const { return ticket_.held() && kind_ == FailoverQueue::Kind::kAlone; }
  // The stream leaves the line, so that the next one can start.
  void GiveTicketUp();
  void GiveAttemptUp();
  // Does the step after a pause that grows with each failure.
  void BackOff(StreamStep step);
  // Does the step when it is this stream's turn in line.
  void Resubmit(StreamStep step);
  void OnTurnInLine(StreamStep step);
  // Returns true if the step must wait for this worker: a trial waits for the streams that run
  // there, and other steps wait for a trial that runs there.
  bool WaitsAt(const PickedWorker& worker, StreamStep step);
  void Later(absl::Duration wait, void (StreamPlacement::*then)(StreamStep), StreamStep step);
  // Returns a function whose first call tries the step, unless something else was tried meanwhile.
  std::function<void()> ResumeOnce(StreamStep step);
  // When to stop waiting for workers, on the monotonic clock.
  absl::Duration PatienceEnd();
  // The suspicion of the prompt if the step ran now.
  Suspicion SuspicionAt(StreamStep step) const;
  bool IsExhausted();
  // Ends the stream if its prompt was convicted, its attempts are used up, or its deadline passed.
  bool EndIfConvicted(StreamStep step);
  // Returns true if the prompt was convicted while this stream waited to run it: then it is refused
  // to this sender, too.
  bool IsRefused(StreamStep step);

  Owner* const owner_;
  const GenerationContext context_;
  const std::string session_id_;
  const absl::Duration deadline_;
  PromptId prompt_;
  absl::Duration found_at_;  // when prompt_ was set
  std::string model_;        // its digest
  StreamState state_ = StreamState::kStarting;

  int32_t attempt_ = 0;
  PickedWorker worker_;
  WorkerSighting begun_;  // when worker_ was picked
  std::optional<StreamStep> asked_;
  std::vector<std::string> failed_workers_;
  std::string lost_worker_;  // the failed worker left last; empty once another one runs it

  RetryState failures_;
  absl::Status last_failure_;
  Patience patience_;
  int64_t waits_ = 0;

  CrashEvidence::Attempt trial_;                            // at worker_
  FailoverQueue::Ticket ticket_;                            // held on the way to another worker
  FailoverQueue::Kind kind_ = FailoverQueue::Kind::kUsual;  // of the ticket
  std::optional<absl::Duration> calm_since_;                // since when it waits for its trial
  std::optional<Hold> hold_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_STREAM_PLACEMENT_H_
