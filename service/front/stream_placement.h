// StreamPlacement: decides which worker runs a stream. Between two workers, it decides whether the
// stream backs off, waits, or is tried alone (a trial, see crash_evidence.h). stream_state.h lists
// the states.
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

// The steps of a stream for which a worker is needed.
enum class StreamStep : uint8_t { kFindModel, kPrepare, kFindReceivedText, kRun };

// Use it on the loop only.
//
// Large because back-off, the queue, trials and waiting exclude each other: when one of them
// begins, it ends the others.
class StreamPlacement {
 public:
  // The stream. The placement is a member of it.
  class Owner {
   public:
    virtual ~Owner() = default;
    // Does the step now. The stream may end during this call.
    virtual void Do(StreamStep step) = 0;
    // Returns how many tokens the workers have reported until now.
    virtual int64_t reported() const = 0;
    // Returns the request for PickWorker. The placement adds what earlier attempts require.
    virtual PickRequest MakePick() const = 0;
    virtual void End(absl::Status status) = 0;
    // Called when MayResume may return true now.
    virtual void OnMayResume() = 0;
    // Returns a pointer that is locked while a callback runs, so that the stream stays alive.
    virtual std::weak_ptr<const void> Life() const = 0;
  };

  // `deadline` is a time of the monotonic clock. If `session_id` is empty, there is no session.
  StreamPlacement(Owner* owner, const GenerationContext& context, std::string session_id,
                  absl::Duration deadline)
      : owner_(owner), context_(context), session_id_(std::move(session_id)), deadline_(deadline) {}

  // Call it before every step except kFindModel.
  void SetPrompt(const PromptId& prompt, std::string model_digest) {
    prompt_ = prompt;
    found_at_ = context_.clock->Monotonic();
    model_ = std::move(model_digest);
  }

  // Does the step at once. But if a worker has failed this stream, or the prompt is suspected of
  // crashing workers, the stream waits for its turn first.
  void Try(StreamStep step);
  // Picks worker() for `step` and begins an attempt there. Returns false if the step will be done
  // later, or if the stream has ended.
  bool TakeWorker(StreamStep step);
  // Like TakeWorker, for a step that cannot crash a worker. It begins no attempt.
  bool TakeAnyWorker(StreamStep step);
  // Does the step when the workers have changed. If that takes too long, ends the stream with
  // `reason`.
  void WaitForWorkers(StreamStep step, absl::Status reason);

  // worker() has failed `step`. Tries the step again on another worker, or ends the stream.
  void Retry(absl::Status status, EndedBy by, StreamStep step);
  // worker() was lost while it had nothing to compute for this stream. Does kRun again when it is
  // the stream's turn. This is not counted as a failure.
  void ComeBack(const absl::Status& status);
  // worker() has no room. Does kRun again when a worker has room, but waits only for a limited
  // time.
  void WaitForRoom(absl::Status status);
  bool AnotherHasRoom() const;
  // worker() drains. Does kRun on another worker at once. This is not counted as a failure.
  void Migrate();

  // worker() answered a unary step.
  void OnAnswered() { asked_.reset(); }
  // worker() has prepared the prompt. If the prompt is tried alone, worker() must also run it, and
  // may run nothing else.
  void OnPrepared();
  // Forgets earlier failures, because they do not concern the next step.
  void BeginAttempts();
  void OnTokens(int64_t count);
  // Returns whether worker() may get credit now. In one case, it may not: this stream was paused
  // when another stream's trial began on worker(), and could also crash the worker. Then this
  // stream waits for the end of the trial, but only for a limited time. After that, OnMayResume is
  // called.
  bool MayResume();
  // The worker got credit for this stream and may compute again. Before, it had no credit, because
  // the client did not read.
  void OnCredit() { trial_.Resume(); }
  void OnStandstill();
  // The last token has arrived.
  void OnFinished();
  void End();

  // Returns the worker that was picked last. Its name is empty before the first pick.
  const PickedWorker& worker() const { return worker_; }
  int32_t attempt() const { return attempt_; }
  // Returns the unary step to which worker() has not responded yet.
  std::optional<StreamStep> asked() const { return asked_; }
  // Returns how many tokens this attempt must be able to generate even if the client does not read.
  int64_t ProofTokens() const;
  bool ended() const { return state_ == StreamState::kEnded; }

 private:
  // How long the stream waits for workers. The time begins when no worker responds, and ends when
  // one does.
  struct Patience {
    bool begun = false;
    absl::Duration end;
    int aways = 0;  // number of attempts that no worker accepted
  };

  // This stream is paused and waits for the end of another stream's trial.
  struct Hold {
    int32_t attempt = 0;
    absl::Duration end;  // when it stops waiting
    bool asks = false;   // OnMayResume will be called
  };

  PickRequest Pick() const;
  // Returns a sighting of the process on which the attempt began.
  WorkerSighting Sight() const;
  void GoTo(StreamState next);
  bool tried_alone() const { return ticket_.held() && kind_ == FailoverQueue::Kind::kAlone; }
  // Leaves the queue, so that the next stream can start.
  void GiveTicketUp();
  void GiveAttemptUp();
  // Does the step after a pause. The pause grows with each failure.
  void BackOff(StreamStep step);
  // Enters the queue. Does the step when it is this stream's turn.
  void Resubmit(StreamStep step);
  void OnTurnInLine(StreamStep step);
  // Returns whether the step must wait for this worker. A trial waits until streams that run there
  // cannot crash the worker. Other steps wait until a trial that runs there has ended, or until
  // another worker becomes available.
  bool WaitsAt(const PickedWorker& worker, StreamStep step);
  void Later(absl::Duration wait, void (StreamPlacement::*then)(StreamStep), StreamStep step);
  // Returns a function. Its first call tries the step, unless something else was tried in the
  // meantime.
  std::function<void()> ResumeOnce(StreamStep step);
  // Returns when the stream stops waiting for workers, on the monotonic clock.
  absl::Duration PatienceEnd();
  // Returns how suspicious the prompt is if the step runs now.
  Suspicion SuspicionAt(StreamStep step) const;
  bool IsExhausted();
  // Ends the stream if its prompt is convicted, if it has no attempts left, or if its deadline has
  // passed. Returns whether the stream has ended.
  bool EndIfConvicted(StreamStep step);
  // Returns whether the prompt is refused to this sender. If the prompt was convicted while this
  // stream waited to run it alone, it is from now on refused to this sender, too.
  bool IsRefused(StreamStep step);

  Owner* const owner_;
  const GenerationContext context_;
  const std::string session_id_;
  const absl::Duration deadline_;
  PromptId prompt_;
  absl::Duration found_at_;  // when prompt_ was set
  std::string model_;        // digest of the model
  StreamState state_ = StreamState::kStarting;

  int32_t attempt_ = 0;
  PickedWorker worker_;
  WorkerSighting begun_;  // the worker's process when worker_ was picked
  std::optional<StreamStep> asked_;
  std::vector<std::string> failed_workers_;
  // the name of the worker that failed last; empty when the stream runs again
  std::string lost_worker_;

  RetryState failures_;
  absl::Status last_failure_;
  Patience patience_;
  int64_t waits_ = 0;

  CrashEvidence::Attempt trial_;  // the attempt on worker_
  FailoverQueue::Ticket ticket_;  // held from the queue until the stream runs again
  FailoverQueue::Kind kind_ = FailoverQueue::Kind::kUsual;  // the kind of the ticket
  std::optional<absl::Duration> calm_since_;  // when the stream began to wait for its trial
  std::optional<Hold> hold_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_STREAM_PLACEMENT_H_
