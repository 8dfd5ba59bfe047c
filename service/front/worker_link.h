// WorkerLink: a front's interface to one worker. It does not depend on gRPC's types and threads.
#ifndef TIDEPOOL_SERVICE_FRONT_WORKER_LINK_H_
#define TIDEPOOL_SERVICE_FRONT_WORKER_LINK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tidepool/v1/admin.pb.h"
#include "tidepool/v1/inference.pb.h"
#include "tidepool/worker/v1/worker.pb.h"

namespace tidepool::service {

// One Run call. Use it on the loop only. The destructor cancels the call, and no callback follows.
class RunCall {
 public:
  virtual ~RunCall() = default;
  virtual void AddCredit(int64_t tokens) = 0;
};

// Why a call has failed.
enum class EndedBy : uint8_t {
  kCrash,   // the worker had accepted the call; then the worker died, or the connection broke
  kWorker,  // the worker returned an error and still runs
  kDrain,   // the worker reported that it drains
  kSilent,  // the worker had accepted the call, but now sends nothing or is stuck
  kAway,    // the worker never received the call, or never accepted it
  // The connection broke before the worker responded. The request may have crashed the worker, or
  // may never have arrived there.
  kUnanswered,
};

struct RunEvents {
  std::function<void(worker::v1::RunResponse)> on_response;
  // Called once, at the end. If the run has succeeded, a response with a finish_reason came before.
  std::function<void(absl::Status, EndedBy)> on_end;
};

// Returns why a unary call with this status has failed: kCrash, kUnanswered or kAway.
EndedBy UnaryEndedBy(const absl::Status& status);
// Returns `status` with `by` attached, so that UnaryEndedBy returns `by`.
absl::Status WithEndedBy(absl::Status status, EndedBy by);

// The maximum time of one attempt to connect to a worker.
inline constexpr absl::Duration kWorkerConnectTimeout = absl::Seconds(2);

// Call every function on the front's loop. Callbacks also run on the loop, but never before the
// function has returned. Deadlines are times of the monotonic clock. Callbacks of unary calls may
// run after the link was destroyed. No call ends with CANCELLED, because a client would believe
// that it had cancelled.
class WorkerLink {
 public:
  template <typename T>
  using Done = std::function<void(absl::StatusOr<T>)>;

  virtual ~WorkerLink() = default;

  // HOST:PORT, or "in process".
  virtual const std::string& address() const = 0;

  virtual void Prepare(worker::v1::PrepareRequest request, absl::Duration deadline,
                       Done<worker::v1::PrepareResponse> done) = 0;
  virtual std::unique_ptr<RunCall> Run(worker::v1::Start start, absl::Duration deadline,
                                       RunEvents events) = 0;
  virtual void Tokenize(v1::TokenizeRequest request, absl::Duration deadline,
                        Done<v1::TokenizeResponse> done) = 0;
  virtual void Detokenize(v1::DetokenizeRequest request, absl::Duration deadline,
                          Done<v1::DetokenizeResponse> done) = 0;
  // Like Detokenize, for a text that the front needs for a request of this principal. The call
  // waits in the principal's queue of prompts, not in the queue of clients' Tokenize and Detokenize
  // calls.
  virtual void TextOf(v1::DetokenizeRequest request, const std::string& principal,
                      absl::Duration deadline, Done<v1::DetokenizeResponse> done) = 0;
  virtual void GetStats(absl::Duration deadline, Done<v1::GetStatsResponse> done) = 0;
  // The Admin RPCs with the same names, for this worker only.
  virtual void SetOffload(v1::SetOffloadRequest request, absl::Duration deadline,
                          Done<v1::SetOffloadResponse> done) = 0;
  virtual void RefreshExperts(v1::RefreshExpertsRequest request, absl::Duration deadline,
                              Done<v1::RefreshExpertsResponse> done) = 0;
  virtual void GetPlacement(v1::GetPlacementRequest request, absl::Duration deadline,
                            Done<v1::GetPlacementResponse> done) = 0;
  virtual void Drain(v1::DrainRequest request, absl::Duration deadline,
                     Done<v1::DrainResponse> done) = 0;
  // Begins to watch the worker's states, with the RPC Watch. If the stream of states ends, it is
  // opened again, with back-off, as long as the link exists. `on_state` gets each state. `on_lost`
  // is called each time the stream ends. The status OK means that the worker is not lost. The
  // worker has closed the stream because of the connection's age, and the next stream is opened at
  // once.
  virtual void Watch(std::function<void(const worker::v1::WatchResponse&)> on_state,
                     std::function<void(absl::Status)> on_lost) = 0;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_WORKER_LINK_H_
