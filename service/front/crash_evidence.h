// CrashEvidence: decides which prompt, if any, crashes the workers of a front.
//
// The rule:
// 1. When a worker crashes, every stream that ran on it is a suspect: its prompt may be the cause.
//    The stream stays a suspect until it has generated kProvenTokens tokens after its position
//    (`place`) at the crash. In fact, the worker may have generated more tokens, which had not
//    arrived at the front. So a second crash counts even if the stream has generated a few tokens
//    more than that. The number of these tokens is what the stream generates from its last message
//    to the first crash, but in at most kUnheard. A crash while the prompt was prepared counts like
//    a crash before the first token. A worker may also respond to Prepare and then crash because of
//    it. A crash within kLinger after such a response counts only if another crash happened during
//    or after a Prepare of the same prompt. This crash is forgotten when a worker responds to a
//    Prepare of the prompt and then survives for kLinger.
// 2. After two crashes near one position, the prompt is tried alone (a trial). The trial needs a
//    worker on which nothing else runs that could cause a crash. The trial starts when no worker
//    has died for kCalm. The other streams of the front continue, with one exception. A stream on
//    the worker of the trial may be paused because its client does not read. If the stream could
//    cause a crash when it runs again, it gets no credit until the trial ends. If a known death
//    would excuse the crash of a trial (rule 3), the trial does not wait for kCalm. Otherwise it
//    would never start while workers are killed again and again.
// 3. Only the crash of a trial can convict a prompt. The verdict is given kAfter after the crash.
//    If another worker has died without this prompt, in the minute before the crash or until the
//    verdict, workers seem to die for another reason. Then that death excuses the crash. The prompt
//    is tried alone again, after a time without deaths that is twice as long as before. One death
//    excuses only one crash.
// 4. While a verdict is open, no other prompt is tried alone.
//
// So if workers die for no other reason, a prompt that crashes workers at one position crashes
// three of them. Two crash near that position, and one in the trial. If the prompt is sent several
// times together, these streams run on at most two workers, and on one worker after a crash. This
// holds until one of the streams has generated kProvenTokens tokens. A stream continues after any
// number of crashes if its prompt is not their cause. While workers are killed again and again, a
// prompt is tried alone only in two cases. Either a known death would excuse its crash, or no
// worker has died for kCalm. If the worker of the trial is killed then, other deaths excuse this
// crash. No other trial runs, so any other worker that dies within kAfter dies without this prompt.
//
// Two kinds of death do not excuse a crash. The first is the end of a worker that drains. The
// second is the death of a worker that ran another prompt whose trial has crashed, if its stream
// had not passed the position of that crash. A broken connection looks like a crash. Such a crash
// is forgotten when the same process responds again.
//
// A prompt that crashes workers at a different position each time is also found. After kManyCrashes
// crashes, its trial lasts until it has generated kLongProof tokens.
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
  kSuspect,  // the prompt may have caused a crash
  kAlone,    // the prompt may have caused two crashes, so it must be tried alone
};

// The crashes of a prompt are counted together for all senders, so that several senders of one
// prompt do not crash three workers each. The verdict applies to the senders that had sent the
// prompt before. If another sender sends the prompt later, it is tried alone. Only if this crashes
// one more worker, the prompt is refused to this sender, too.
//
// Use it on the loop only. Prompts are identified by PromptId::content. Large because all functions
// need the same records of crashes and running streams.
class CrashEvidence {
 public:
  static constexpr int64_t kProvenTokens = RetryState::kProvenTokens;
  static constexpr size_t kManyCrashes = 8;
  static constexpr int64_t kLongProof = 64;
  // Tokens that were generated longer ago have arrived at the front.
  static constexpr absl::Duration kUnheard = absl::Milliseconds(250);
  static constexpr int64_t kMaxUnheard = 256;  // a stream's credit
  static constexpr absl::Duration kCalm = absl::Seconds(2);
  static constexpr absl::Duration kLongestCalm = absl::Minutes(1);
  // A process that does not respond again within this time counts as dead.
  static constexpr absl::Duration kSignOfLife = absl::Seconds(2);
  static constexpr absl::Duration kBefore = absl::Minutes(1);
  static constexpr absl::Duration kAfter = absl::Seconds(5);
  // If a Prepare crashes its worker, the crash comes within this time after the response to
  // Prepare.
  static constexpr absl::Duration kLinger = absl::Milliseconds(500);
  // How long crashes and suspects are remembered.
  static constexpr absl::Duration kKept = absl::Minutes(10);
  static constexpr size_t kMaxPrompts = 1024;
  static constexpr size_t kMaxStoredCrashes = 4096;
  static constexpr size_t kMaxProven = 4096;
  static constexpr size_t kMaxAnswered = 4096;

  // When a prompt is convicted, `convict` is called with each sender (PromptId::sent) whose streams
  // were near its crashes. Any function of this class may call it. `clock` must outlive this
  // object.
  CrashEvidence(const base::Clock* clock, LookAtFate look, std::function<void(uint64_t)> convict)
      : clock_(clock), look_(std::move(look)), convict_(std::move(convict)) {}

  struct Work {
    const WorkerLink* worker = nullptr;
    std::string name = {};  // name of the worker
    uint64_t prompt = 0;    // PromptId::content
    uint64_t sender = 0;    // PromptId::sent
    int64_t place = 0;      // number of output tokens until now; 0 while the prompt is prepared
    bool prepares = false;
    Suspicion under = Suspicion::kNone;
  };
  // The work of a stream on a worker. The work ends when this object is destroyed or reset. If the
  // CrashEvidence is destroyed before this object, the functions do nothing.
  class Attempt {
   public:
    Attempt() = default;
    Attempt(Attempt&& other) noexcept { *this = std::move(other); }
    Attempt& operator=(Attempt&& other) noexcept;
    ~Attempt() { Reset(); }
    void Reset();
    // The worker has responded to this Prepare. Ends the attempt.
    void Answer(const WorkerSighting& worker);
    // The stream has generated `count` more tokens.
    void OnTokens(int64_t count);
    // The client does not read, so the worker computes nothing for the stream until Resume.
    void Pause();
    void Resume();
    // Returns whether the stream is paused, and could crash the worker after it is resumed.
    bool IsUnprovenPause() const;

   private:
    friend class CrashEvidence;
    Attempt(CrashEvidence* evidence, uint64_t number)
        : evidence_(evidence), alive_(evidence->alive_), number_(number) {}
    // Returns null if the attempt has ended.
    CrashEvidence* evidence() const { return alive_.expired() ? nullptr : evidence_; }

    CrashEvidence* evidence_ = nullptr;
    std::weak_ptr<int> alive_;
    uint64_t number_ = 0;
  };
  [[nodiscard]] Attempt Begin(const Work& work);

  // The worker of this attempt has crashed, or seems to have crashed. Ends the attempt.
  void OnCrash(Attempt* attempt, const WorkerSighting& worker);
  // A worker that was not draining is lost.
  void OnLost(const WorkerSighting& worker) { Note(worker); }

  // Returns the suspicion of a prompt at this position. First gives the verdicts that are due, as
  // Conclude does.
  Suspicion Of(uint64_t prompt, int64_t place);
  void Conclude();
  // Returns how long to wait before calling this function again. 0: the prompt may be tried alone
  // now. `since` is when the prompt began to wait for its trial. After kLongestCalm, or if a known
  // death would excuse a crash, the prompt waits only for open verdicts.
  absl::Duration CalmIn(uint64_t prompt, absl::Duration since);
  // Counts the work for other prompts that could crash this worker. This includes the streams that
  // are not paused and have generated fewer than kProvenTokens tokens in this attempt. It also
  // includes the Prepares to which the worker has responded less than kLinger ago.
  int64_t UnprovenBeside(const WorkerLink* worker, uint64_t prompt) const;
  // Returns how many crashes count against this prompt. Crashes of its own trials are included.
  size_t CrashesOf(uint64_t prompt) const;
  // If streams of this prompt could already crash the maximum number of workers, returns the names
  // of these workers. Further streams of the prompt may use only them. The maximum is two workers
  // before the first crash, and one after it. A worker counts if work for this prompt could crash
  // it, as described at UnprovenBeside. Otherwise returns an empty list: any worker may be used.
  // The list is also empty if a stream of the prompt has generated kProvenTokens tokens and the
  // prompt was not near a crash since.
  std::vector<std::string> OnlyAt(uint64_t prompt) const;
  // Returns whether the prompt was convicted at the time `since` or later.
  bool ConvictedSince(uint64_t prompt, absl::Duration since) const;
  // Returns how many tokens a stream must generate after a crash until it is no longer a suspect.
  int64_t ProofOf(uint64_t prompt) const;

 private:
  struct Running {
    Work work;
    absl::Duration began;
    int64_t made = 0;  // number of tokens generated in this attempt
    // `first`: number of tokens in the first message. `first_at`, `last_at`: when the first and the
    // last tokens arrived.
    int64_t first = 0;
    absl::Duration first_at, last_at;
    bool paused = false;
  };
  // A Prepare to which the worker has responded, and which may still crash it.
  struct Answered {
    Work work;
    WorkerSighting worker;  // the worker's process when it responded
  };
  // A stream that ran on a worker when that worker crashed.
  struct Present {
    uint64_t prompt = 0;
    int64_t place = 0;
    bool proven = false;
    bool passed = false;    // see HasPassed
    bool answered = false;  // the worker had just responded to a Prepare of this prompt
  };
  struct Crash {
    uint64_t number = 0;
    WorkerSighting worker;
    std::vector<Present> there;
  };
  struct NearCrash {
    uint64_t crash = 0;  // number of the crash
    uint64_t sender = 0;
    WorkerSighting worker;
    int64_t place = 0;
    absl::Duration unheard;  // time between the last message and the crash, at most kUnheard
    int64_t reach = 0;  // number of tokens after `place` that may have been generated in that time
    bool prepare = false;   // during a Prepare of this prompt, or after the response to one
    bool answered = false;  // after the response to a Prepare
  };
  struct Prompt {
    std::vector<NearCrash> near;
    // number of crashes near the prompt since it last generated kLongProof tokens
    size_t total = 0;
    std::optional<NearCrash> judged;  // crash of a trial whose verdict is open
    bool accused = false;             // a trial of the prompt has crashed
    int excused = 0;                  // number of trials whose crash was excused
    std::set<uint64_t> excuses;       // numbers of the crashes that have excused its trials
    std::optional<absl::Duration> convicted_at;
    absl::Duration touched;
  };

  static bool IsProven(const Running& running);
  // Returns whether the stream can only crash its worker at a position that no earlier attempt has
  // reached. This is so if it has generated kProvenTokens tokens more than an earlier worker may
  // have generated before its crash. It is also so if the client does not read, because then the
  // worker computes nothing for the stream.
  bool HasPassed(const Running& running) const;
  static int64_t ProofOf(const Prompt& prompt);
  static bool Counts(const Prompt& prompt, const NearCrash& near);
  static bool IsAt(const Prompt& prompt, const NearCrash& near, int64_t place);
  // Returns how many tokens this stream may have generated in the time `unheard`.
  int64_t ReachIn(absl::Duration unheard, const Running& running) const;
  // Returns the crash of this process. Records it if it is not known yet.
  Crash& Note(const WorkerSighting& worker);
  bool SameCrash(const Crash& crash, const WorkerSighting& worker) const;
  Prompt& Touch(uint64_t prompt);
  void DropOld();
  // Opens a verdict if the work was a trial, and nothing else ran on the worker that could be the
  // cause.
  static void Judge(const Work& work, const Crash& crash, const NearCrash& near, Prompt* prompt);
  // Counts the crash against the prompts that its worker had just prepared.
  void HoldAnswered(Crash* crash);
  // Forgets the Prepares that their workers have survived for kLinger. Drops the crashes that were
  // counted because of an earlier response to Prepare of the same prompts.
  void DropAnswered();
  void OnTokens(Running* running, int64_t count);
  void NoteProven(uint64_t prompt);
  void ForgetPassed(const Running& running);
  // Gives the verdict on one prompt. Returns false if it stays open.
  bool Conclude(uint64_t digest, Prompt* prompt);
  enum class Witness : uint8_t { kNone, kMayCome, kFound };
  // Searches for a crash that excuses the crash of the prompt's trial. Adds its number to the
  // prompt's excuses.
  Witness FindWitness(uint64_t digest, Prompt* prompt) const;
  // Returns whether this prompt at `place`, or another prompt whose trial has crashed, may have
  // caused the crash.
  bool Explained(const Crash& crash, uint64_t digest, const Prompt& prompt, int64_t place) const;
  // Returns whether a known death would excuse the crash of a trial that begins now.
  bool HasExcuse(uint64_t digest) const;

  const base::Clock* clock_;
  const LookAtFate look_;
  const std::function<void(uint64_t)> convict_;
  uint64_t next_number_ = 1;
  absl::flat_hash_map<uint64_t, Running> running_;
  std::deque<Answered> answered_;  // in the order of their times
  std::deque<Crash> crashes_;      // in the order of their times
  std::map<uint64_t, Prompt> prompts_;
  // The prompts for which a stream has generated kProvenTokens tokens.
  absl::flat_hash_set<uint64_t> proven_;
  std::deque<uint64_t> proven_order_;
  const std::shared_ptr<int> alive_ = std::make_shared<int>();
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_CRASH_EVIDENCE_H_
