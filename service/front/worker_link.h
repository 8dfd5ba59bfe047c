// WorkerLink: a front's interface to one worker, independent of gRPC types and threads.
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

// One Run. Loop only. The destructor cancels it, and no callback follows.
class RunCall {
 public:
  virtual ~RunCall() = default;
  virtual void AddCredit(int64_t tokens) = 0;
};

// Who ended a call that failed.
enum class EndedBy : uint8_t {
  kCrash,   // the worker had accepted it; then the worker or the connection died
  kWorker,  // the worker returned an error and still runs
  kDrain,   // the worker said that it drains
  kSilent,  // the worker accepted it, but is now silent or stuck
  kAway,    // the worker never received or never accepted it
  // The connection broke before the worker responded. The request may have crashed it, or may never
  // have arrived.
  kUnanswered,
};

struct RunEvents {
  std::function<void(worker::v1::RunResponse)> on_response;
  // Called once at the end. If the run succeeded, a response with a finish_reason came before.
  std::function<void(absl::Status, EndedBy)> on_end;
};

// Returns who ended a unary call that failed with this status: kCrash, kUnanswered or kAway.
EndedBy UnaryEndedBy(const absl::Status& status);
// Returns `status` with `by` attached, for UnaryEndedBy.
absl::Status WithEndedBy(absl::Status status, EndedBy by);

// Maximum time of an attempt to connect to a worker.
inline constexpr absl::Duration kWorkerConnectTimeout = absl::Seconds(2);

// Loop only. Call every function on the front's loop. Callbacks run on the loop, never before the
// function has returned. Deadlines are times of the machine's monotonic clock. Callbacks of unary
// calls can run after the link was destroyed. No call ends with CANCELLED, because a client would
// think that it had cancelled.
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
  // Like Detokenize, for a text that the front needs for a request of this principal. It waits in
  // the principal's queue of prompts, not after text calls of clients.
  virtual void TextOf(v1::DetokenizeRequest request, const std::string& principal,
                      absl::Duration deadline, Done<v1::DetokenizeResponse> done) = 0;
  virtual void GetStats(absl::Duration deadline, Done<v1::GetStatsResponse> done) = 0;
  // The Admin RPCs of these names, for this worker.
  virtual void SetOffload(v1::SetOffloadRequest request, absl::Duration deadline,
                          Done<v1::SetOffloadResponse> done) = 0;
  virtual void RefreshExperts(v1::RefreshExpertsRequest request, absl::Duration deadline,
                              Done<v1::RefreshExpertsResponse> done) = 0;
  virtual void GetPlacement(v1::GetPlacementRequest request, absl::Duration deadline,
                            Done<v1::GetPlacementResponse> done) = 0;
  virtual void Drain(v1::DrainRequest request, absl::Duration deadline,
                     Done<v1::DrainResponse> done) = 0;
  // Begins to watch. The stream is reopened with back-off as long as the link lives. `on_state`
  // gets each state, `on_lost` each end of the stream. OK means that nothing is lost: the worker
  // closed the stream because of its age, and the next one is being opened at once.
  virtual void Watch(std::function<void(const worker::v1::WatchResponse&)> on_state,
                     std::function<void(absl::Status)> on_lost) = 0;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_WORKER_LINK_H_
