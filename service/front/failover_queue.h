// FailoverQueue: decides when a stream that has lost its worker may start on another one, and says
// when a trial (crash_evidence.h) has ended. If all such streams started at once, their prompts
// would overload the remaining workers. So only a share of all running streams may be restarting at
// the same time, and the others wait in this queue. Envoy limits retries in a similar way
// (circuit_breaker.proto RetryBudget: 20 % of the active requests, at least 3). But here, streams
// above the limit do not fail. They wait, because they were already accepted.
#ifndef TIDEPOOL_SERVICE_FRONT_FAILOVER_QUEUE_H_
#define TIDEPOOL_SERVICE_FRONT_FAILOVER_QUEUE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "service/base/event_loop.h"

namespace tidepool::service {

// Use it on the loop only.
class FailoverQueue {
 public:
  static constexpr double kShare = 0.2;
  static constexpr int64_t kAlways = 3;

  enum class Kind : uint8_t {
    kUsual,
    // The prompt is a suspect: it may have crashed a worker. Suspects start after the usual
    // streams. The number of suspects of one model that are starting is at most the number of its
    // workers. So each suspect can have a worker without another suspect, and a crash of that
    // worker counts against only one of them.
    kSuspect,
    // The prompt is tried alone on a worker (a trial). Trials start after all other streams. Each
    // model has at most one trial at a time. While the trial runs, its worker gets no other stream.
    kAlone,
  };

  // A stream's place in the queue, or among the restarting streams. When the ticket is destroyed,
  // the stream loses its place. The ticket must not outlive the queue.
  class Ticket {
   public:
    Ticket() = default;
    Ticket(Ticket&& other) noexcept { *this = std::move(other); }
    Ticket& operator=(Ticket&& other) noexcept;
    ~Ticket() { Reset(); }
    void Reset();
    // Sets the worker on which the stream starts.
    void GoTo(const std::string& worker);
    // The stream keeps its place for this time, even if the ticket is destroyed earlier.
    void HoldFor(absl::Duration time);
    bool held() const { return line_ != nullptr; }
    // Returns the worker on which the stream starts. Empty if that is not known yet.
    const std::string& worker() const { return worker_; }

   private:
    friend class FailoverQueue;
    Ticket(FailoverQueue* line, uint64_t number) : line_(line), number_(number) {}

    FailoverQueue* line_ = nullptr;
    uint64_t number_ = 0;
    std::string worker_;
  };

  // `running` returns the number of streams, including those in the queue. `serving` returns the
  // number of workers that serve the model with this digest. `loop` must outlive the queue.
  FailoverQueue(Executor* loop, std::function<int64_t()> running,
                std::function<int64_t(const std::string&)> serving)
      : loop_(loop), running_(std::move(running)), serving_(std::move(serving)) {}

  // Adds a stream to the queue. When it is the stream's turn, posts `go`, unless the ticket was
  // destroyed. Keep the ticket until the stream runs again.
  [[nodiscard]] Ticket Enter(Kind kind, const std::string& model_digest, std::function<void()> go);

  // Returns the names of workers on which suspects or trials are starting.
  std::vector<std::string> WithSuspects() const;
  // Returns the names of workers on which trials are starting.
  std::vector<std::string> WithTrials() const;
  // Posts `task` once, when a trial's ticket is destroyed or the trial moves to another worker.
  void AfterTrial(std::function<void()> task) { after_trial_.push_back(std::move(task)); }
  // A worker has become available. Streams that waited for one start.
  void OnWorkerAvailable() { Advance(); }
  int64_t waiting() const;
  int64_t in_flight() const { return static_cast<int64_t>(in_flight_.size()); }

 private:
  struct Waiting {
    uint64_t number = 0;
    std::function<void()> go;
  };
  struct OnItsWay {
    Kind kind = Kind::kUsual;
    std::string model_digest;
    std::string worker;  // empty: not known yet
    bool stays = false;  // HoldFor was called, and its time has not passed
    bool left = false;   // the ticket was destroyed during this time
  };
  using Line = std::deque<Waiting>;  // in the order of the calls of Enter

  std::vector<std::string> WorkersOf(const std::vector<Kind>& kinds) const;
  void Leave(uint64_t number);
  void HoldFor(uint64_t number, absl::Duration time);
  void EndTrial();
  void Advance();
  using Lines = std::map<std::string, Line>;  // by model digest; no line in it is empty
  void SendSuspects(Kind kind, Lines* lines, int64_t limit);
  // Considers the lines whose model has a free worker for this kind. Returns the one whose first
  // stream has waited longest, or end() if there is none.
  Lines::iterator NextSuspects(Kind kind, Lines* lines) const;
  bool HasWorker(Kind kind, const std::string& model_digest) const;
  void Send(OnItsWay way, Line* line);

  Executor* loop_;
  const std::function<int64_t()> running_;
  const std::function<int64_t(const std::string&)> serving_;
  uint64_t next_number_ = 1;
  Line usual_;
  Lines suspects_;
  Lines trials_;
  std::vector<std::function<void()>> after_trial_;
  std::map<uint64_t, OnItsWay> in_flight_;
  const std::shared_ptr<int> alive_ = std::make_shared<int>();
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_FAILOVER_QUEUE_H_
