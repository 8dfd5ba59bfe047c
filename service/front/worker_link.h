// WorkerLink: a front's way to one worker, without the wire's own types or threads.
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

// One Run. Loop only. Destruction cancels it, and nothing is called any more.
class RunCall {
 public:
  virtual ~RunCall() = default;
  virtual void AddCredit(int64_t tokens) = 0;
};

// Who ended a call that failed.
enum class EndedBy : uint8_t {
  kCrash,   // the worker had taken it, and died, or the way to it broke
  kWorker,  // it said so, and lives
  kDrain,   // it said so, for it takes no work any more
  kSilent,  // it took it and says nothing any more, or that it is stuck
  kAway,    // it never got it, or did not take it
  // The connection broke before the worker answered anything: it may have died of the request, or
  // before that came.
  kUnanswered,
};

struct RunEvents {
  std::function<void(worker::v1::RunResponse)> on_response;
  // The end, once. A run that ends well had a response with a finish_reason before.
  std::function<void(absl::Status, EndedBy)> on_end;
};

// Of a unary call that failed with this status: kCrash, kUnanswered or kAway.
EndedBy UnaryEndedBy(const absl::Status& status);
// `status`, for which UnaryEndedBy returns `by`.
absl::Status WithEndedBy(absl::Status status, EndedBy by);

// What an attempt to connect to a worker may take.
inline constexpr absl::Duration kWorkerConnectTimeout = absl::Seconds(2);

// Loop only: every function is called on the front's loop, and calls back there, never before it
// returned. Deadlines are times of the machine's monotonic clock. Callbacks of unary calls can come
// after the link is gone. No call ends with CANCELLED: to a client that would be its own doing.
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
  // As Detokenize, of what the front itself needs for a request of this principal: it waits where
  // the principal's prompts do, and behind no text of a client's.
  virtual void TextOf(v1::DetokenizeRequest request, const std::string& principal,
                      absl::Duration deadline, Done<v1::DetokenizeResponse> done) = 0;
  virtual void GetStats(absl::Duration deadline, Done<v1::GetStatsResponse> done) = 0;
  // As Admin's rpcs of these names, of this worker.
  virtual void SetOffload(v1::SetOffloadRequest request, absl::Duration deadline,
                          Done<v1::SetOffloadResponse> done) = 0;
  virtual void RefreshExperts(v1::RefreshExpertsRequest request, absl::Duration deadline,
                              Done<v1::RefreshExpertsResponse> done) = 0;
  virtual void GetPlacement(v1::GetPlacementRequest request, absl::Duration deadline,
                            Done<v1::GetPlacementResponse> done) = 0;
  virtual void Drain(v1::DrainRequest request, absl::Duration deadline,
                     Done<v1::DrainResponse> done) = 0;
  // Begins to watch; the stream is opened again, with back-off, for as long as the link lives.
  // `on_state` gets each state, `on_lost` each loss of the stream. OK is no loss: the worker ended
  // a stream of states in good order, because of its age, and the next is being opened at once.
  virtual void Watch(std::function<void(const worker::v1::WatchResponse&)> on_state,
                     std::function<void(absl::Status)> on_lost) = 0;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_WORKER_LINK_H_
