// CrashEvidence: which prompt, if any, crashes the workers of a front.
//
// The rule:
// 1. A crash is held against every stream that ran on that worker, at the place that the stream had
//    reached, until the stream is kProvenTokens tokens past that place. Meanwhile it is a suspect.
//    A fast worker may have been further than its front had heard: a second crash counts up to the
//    tokens that it makes in kUnheard, or in the time that nothing was heard before the crash.
//    A crash while the prompt was prepared counts as one before the first token: a worker may
//    answer Prepare and then die of it. A crash within kLinger after such an answer counts only if
//    another crash was during or after a Prepare of this prompt. It is dropped when a worker that
//    answers a Prepare of it survives for kLinger.
// 2. After two crashes near one place the prompt is tried by itself: on a worker where nothing else
//    runs that could be the cause, and once no worker has died for kCalm. Everybody else goes on,
//    except streams of that worker whose clients did not read when the trial began, and which could
//    be the cause once they compute again: these get no credit until the trial ends.
//    It does not wait for calm if a known death would excuse a crash of the trial (3.): in a series
//    of kills a stream would wait as long as that lasts.
// 3. Only the crash of such an attempt can convict. The verdict comes kAfter later. If a
//    worker died without this prompt meanwhile, or in the minute before, workers die for another
//    reason: that death excuses this crash. One death excuses one crash. Then the prompt is tried
//    by itself again, after a calm twice as long as before.
// 4. While a verdict is open, no other prompt is tried by itself.
//
// So a prompt that crashes workers at one place, where no worker dies for another reason, crashes
// three: two near it and one alone. Copies of it that are sent together are kept to two workers,
// and to one after a crash, until one has made kProvenTokens tokens. A stream that was only near
// crashes goes on, however many there are. In a series of kills a prompt is tried by itself only
// where a death excuses it beforehand, or after a gap of kCalm. If a kill then hits the trial,
// other deaths excuse it: no worker runs another trial, so one that dies within kAfter dies without
// this prompt.
//
// Two other causes do not excuse: a worker that drains, and a worker that died while it ran another
// prompt whose own trial crashed. A connection that breaks looks like a crash, and is dropped when
// the same process answers again.
//
// A prompt that crashes workers at other places each time is found, too: after kManyCrashes it is
// tried by itself for kLongProof tokens.
#ifndef TIDEPOOL_SERVICE_FRONT_CRASH_EVIDENCE_H_
#define TIDEPOOL_SERVICE_FRONT_CRASH_EVIDENCE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "service/front/retry_state.h"
#include "service/front/worker_sighting.h"

namespace tidepool::service {

enum class Suspicion : uint8_t {
  kNone,
  kSuspect,  // the latest worker that crashed may have crashed of it
  kAlone,    // two may have: it is to be tried by itself
};

// A prompt is the same whoever sends it, so several senders of one do not crash three workers each.
// The verdict is on those that had sent it by then. Who sends it afterwards is refused only if
// another worker crashes while it tries the prompt of that sender by itself.
//
// Loop only. Prompts are known by PromptId::content.
// Large because every question needs the same record of crashes and running streams.
class CrashEvidence {
 public:
  static constexpr int64_t kProvenTokens = RetryState::kProvenTokens;
  static constexpr size_t kManyCrashes = 8;
  static constexpr int64_t kLongProof = 64;
  // Tokens that are older were heard of.
  static constexpr absl::Duration kUnheard = absl::Milliseconds(250);
  static constexpr int64_t kMaxUnheard = 256;  // a stream's credit
  static constexpr absl::Duration kCalm = absl::Seconds(2);
  static constexpr absl::Duration kLongestCalm = absl::Minutes(1);
  // A process that does not answer again in this time is gone.
  static constexpr absl::Duration kSignOfLife = absl::Seconds(2);
  static constexpr absl::Duration kBefore = absl::Minutes(1);
  static constexpr absl::Duration kAfter = absl::Seconds(5);
  // How long a worker that dies of a Prepare may live after its answer.
  static constexpr absl::Duration kLinger = absl::Milliseconds(500);
  // How long evidence is kept.
  static constexpr absl::Duration kKept = absl::Minutes(10);
  static constexpr size_t kMaxPrompts = 1024;
  static constexpr size_t kMaxCrashes = 4096;
  static constexpr size_t kMaxProven = 4096;
  static constexpr size_t kMaxAnswered = 4096;

  // `convict` is called with each sender whose streams were near the crashes of a prompt that is
  // convicted, from any function here. `clock` outlives this.
  CrashEvidence(const base::Clock* clock, LookAtFate look, std::function<void(uint64_t)> convict)
      : clock_(clock), look_(std::move(look)), convict_(std::move(convict)) {}

  struct Work {
    const WorkerLink* worker = nullptr;
    std::string name = {};  // the worker's
    uint64_t prompt = 0;    // PromptId::content
    uint64_t sender = 0;    // PromptId::sent
    int64_t place = 0;      // output tokens made so far; none while it is prepared
    bool prepares = false;
    Suspicion under = Suspicion::kNone;
  };
  // A stream's work at a worker, for as long as it runs there. Does nothing once the evidence is
  // gone.
  class Attempt {
   public:
    Attempt() = default;
    Attempt(Attempt&& other) noexcept { *this = std::move(other); }
    Attempt& operator=(Attempt&& other) noexcept;
    ~Attempt() { Reset(); }
    void Reset();
    // The worker answered this Prepare. Ends the attempt.
    void Answer(const WorkerSighting& worker);
    // It made `count` more tokens.
    void OnTokens(int64_t count);
    // It computes nothing until Resume: its client takes nothing.
    void Pause();
    void Resume();
    // It is paused, and could be what crashes the worker once it is resumed.
    bool IsUnprovenPause() const;

   private:
    friend class CrashEvidence;
    Attempt(CrashEvidence* evidence, uint64_t number)
        : evidence_(evidence), alive_(evidence->alive_), number_(number) {}
    // Null: it has ended.
    CrashEvidence* evidence() const { return alive_.expired() ? nullptr : evidence_; }

    CrashEvidence* evidence_ = nullptr;
    std::weak_ptr<int> alive_;
    uint64_t number_ = 0;
  };
  [[nodiscard]] Attempt Begin(const Work& work);

  // The attempt's worker crashed, as far as can be seen. Ends the attempt.
  void OnCrash(Attempt* attempt, const WorkerSighting& worker);
  // A worker is lost that did not drain.
  void OnLost(const WorkerSighting& worker) { Note(worker); }

  // Of a prompt at this place. Gives open verdicts that are due, as Conclude does.
  Suspicion Of(uint64_t prompt, int64_t place);
  void Conclude();
  // How long to wait before asking again whether the prompt may be tried by itself; 0: it may now.
  // `since`: when its wait began. After kLongestCalm, or where a known death would excuse a crash,
  // it waits only for open verdicts.
  absl::Duration CalmIn(uint64_t prompt, absl::Duration since);
  // Work there besides this prompt that may crash that worker: streams with less than
  // kProvenTokens tokens from this attempt, and Prepares that were answered within kLinger.
  int64_t UnprovenBeside(const WorkerLink* worker, uint64_t prompt) const;
  // Crashes near this prompt that count; those of its own trials included.
  size_t CrashesOf(uint64_t prompt) const;
  // Names of the workers that are to take copies of this prompt: those that compute it already, or
  // answered a Prepare of it within kLinger, once as many could die of it as may before it is tried
  // by itself. Empty: any worker, as for a prompt of which a stream has made kProvenTokens tokens
  // and which was not near crashes since.
  std::vector<std::string> OnlyAt(uint64_t prompt) const;
  // Whether the prompt was convicted at that time or later.
  bool ConvictedSince(uint64_t prompt, absl::Duration since) const;
  // Tokens past a crash until the prompt is not a suspect any more.
  int64_t ProofOf(uint64_t prompt) const;

 private:
  struct Running {
    Work work;
    absl::Duration began;
    int64_t made = 0;  // tokens
    // Of the first tokens, and of the latest.
    int64_t first = 0;
    absl::Duration first_at, last_at;
    bool paused = false;
  };
  // A Prepare of which the worker may still die.
  struct Answered {
    Work work;
    WorkerSighting worker;  // when it answered
  };
  // A stream that ran on a worker when it crashed.
  struct Present {
    uint64_t prompt = 0;
    int64_t place = 0;
    bool proven = false;
    bool answered = false;  // the worker had just answered a Prepare of it
  };
  struct Crash {
    uint64_t number = 0;
    WorkerSighting worker;
    std::vector<Present> there;
  };
  struct NearCrash {
    uint64_t crash = 0;  // its number
    uint64_t sender = 0;
    WorkerSighting worker;
    int64_t place = 0;
    absl::Duration unheard;  // before it
    int64_t reach = 0;       // tokens past `place` that may have been made in that time
    bool prepare = false;    // during a Prepare of it, or after the answer to one
    bool answered = false;   // after the answer
  };
  struct Prompt {
    std::vector<NearCrash> near;
    size_t total = 0;                 // crashes near it since it last gave kLongProof
    std::optional<NearCrash> judged;  // of a trial, while the verdict is open
    bool accused = false;             // a trial of it crashed
    int excused = 0;                  // trials that crashed and did not count
    std::set<uint64_t> excuses;       // crashes that were used
    std::optional<absl::Duration> convicted_at;
    absl::Duration touched;
  };

  static bool IsProven(const Running& running);
  static int64_t ProofOf(const Prompt& prompt);
  static bool Counts(const Prompt& prompt, const NearCrash& near);
  static bool IsAt(const Prompt& prompt, const NearCrash& near, int64_t place);
  // What the stream of `running` may have made unheard of in such a time.
  int64_t ReachIn(absl::Duration unheard, const Running& running) const;
  // The crash of this process, which may be known already.
  Crash& Note(const WorkerSighting& worker);
  bool SameCrash(const Crash& crash, const WorkerSighting& worker) const;
  Prompt& Touch(uint64_t prompt);
  void DropOld();
  // Opens a verdict if the attempt ran alone.
  static void Judge(const Work& work, const Crash& crash, const NearCrash& near, Prompt* prompt);
  // Holds the crash against prompts that its worker had just prepared.
  void HoldAnswered(Crash* crash);
  // Workers survived these Prepares.
  void DropAnswered();
  void OnTokens(Running* running, int64_t count);
  void NoteProven(uint64_t prompt);
  void ForgetPassed(const Running& running);
  // Concludes one; false: its verdict stays open.
  bool Conclude(uint64_t digest, Prompt* prompt);
  enum class Witness : uint8_t { kNone, kMayCome, kFound };
  // A crash that excuses the prompt's; its number goes to the prompt's excuses.
  Witness FindWitness(uint64_t digest, Prompt* prompt) const;
  // Whether this prompt at `place`, or another cause that is known, may be why that worker died.
  bool Explained(const Crash& crash, uint64_t digest, const Prompt& prompt, int64_t place) const;
  // A death that would excuse the crash of a trial that begins now.
  bool HasExcuse(uint64_t digest) const;

  const base::Clock* clock_;
  const LookAtFate look_;
  const std::function<void(uint64_t)> convict_;
  uint64_t next_number_ = 1;
  absl::flat_hash_map<uint64_t, Running> running_;
  std::deque<Answered> answered_;  // in the order of their times
  std::deque<Crash> crashes_;      // in the order of their times
  std::map<uint64_t, Prompt> prompts_;
  // Prompts of which a stream made kProvenTokens tokens.
  absl::flat_hash_set<uint64_t> proven_;
  std::deque<uint64_t> proven_order_;
  const std::shared_ptr<int> alive_ = std::make_shared<int>();
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_CRASH_EVIDENCE_H_
