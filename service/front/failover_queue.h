// FailoverQueue: whose turn it is among the streams that lost their worker. All at once they would
// bury the workers that are left under prompts, and their own streams with them; so no more than a
// share of the running streams is on its way at a time, and the others wait for them. (A retry
// budget as Envoy's, circuit_breaker.proto RetryBudget: 20 % of the active requests, at least 3;
// but over budget we wait, for these streams were accepted.)
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

#include "service/base/event_loop.h"

namespace tidepool::service {

// Loop only.
class FailoverQueue {
 public:
  static constexpr double kShare = 0.2;
  static constexpr int64_t kAlways = 3;

  enum class Kind : uint8_t {
    kUsual,
    // The prompt may be what crashed the worker: after the usual ones, and as many of these of one
    // model at a time as workers serve it, so that each has a worker to itself among them: a second
    // crash does not count against two of them.
    kSuspect,
    // It is tried by itself: after the others, one of a model at a time, and nothing else is sent
    // to its worker meanwhile.
    kAlone,
  };

  // A place in line or on the way; given up on destruction. Must not outlive the line.
  class Ticket {
   public:
    Ticket() = default;
    Ticket(Ticket&& other) noexcept { *this = std::move(other); }
    Ticket& operator=(Ticket&& other) noexcept;
    ~Ticket() { Reset(); }
    void Reset();
    // It goes to this worker.
    void GoTo(const std::string& worker);
    bool held() const { return line_ != nullptr; }
    // Where it goes; empty: not known yet.
    const std::string& worker() const { return worker_; }

   private:
    friend class FailoverQueue;
    Ticket(FailoverQueue* line, uint64_t number) : line_(line), number_(number) {}

    FailoverQueue* line_ = nullptr;
    uint64_t number_ = 0;
    std::string worker_;
  };

  // `running` tells how many streams there are, those that wait here included, `serving` how many
  // workers serve the model of this digest. `loop` outlives the line.
  FailoverQueue(Executor* loop, std::function<int64_t()> running,
                std::function<int64_t(const std::string&)> serving)
      : loop_(loop), running_(std::move(running)), serving_(std::move(serving)) {}

  // `go` is posted when it is this one's turn, unless the ticket has gone before. The ticket is
  // kept until the stream runs again.
  [[nodiscard]] Ticket Enter(Kind kind, const std::string& model_digest, std::function<void()> go);

  // Workers to which suspects are on their way, those that are tried by themselves included.
  std::vector<std::string> WithSuspects() const;
  // And only those.
  std::vector<std::string> WithTrials() const;
  // Posts `task` when a stream that is tried by itself gives its ticket up.
  void AfterTrial(std::function<void()> task) { after_trial_.push_back(std::move(task)); }
  int64_t waiting() const;
  int64_t under_way() const { return static_cast<int64_t>(under_way_.size()); }

 private:
  struct Waiting {
    uint64_t number = 0;
    std::function<void()> go;
  };
  struct OnItsWay {
    Kind kind = Kind::kUsual;
    std::string model_digest;
    std::string worker;  // empty: none yet
  };
  using Line = std::deque<Waiting>;  // in the order of asking

  std::vector<std::string> WorkersOf(const std::vector<Kind>& kinds) const;
  void Leave(uint64_t number);
  void Advance();
  using Lines = std::map<std::string, Line>;  // by the model's digest; none is empty
  void SendSuspects(Kind kind, Lines* lines, int64_t limit);
  // Of the lines that may go on, the one whose first has waited longest; end(): none.
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
  std::map<uint64_t, OnItsWay> under_way_;
  const std::shared_ptr<int> alive_ = std::make_shared<int>();
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_FAILOVER_QUEUE_H_
