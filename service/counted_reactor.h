// CountedReactor: a unary rpc that ActiveCalls counts until its answer is in the kernel's hands.
// One that left them when it called Finish could be cut by a shutdown under an answer that waits
// for its client's window.
#ifndef TIDEPOOL_SERVICE_COUNTED_REACTOR_H_
#define TIDEPOOL_SERVICE_COUNTED_REACTOR_H_

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "service/active_calls.h"

namespace tidepool::service {

// Deletes itself when gRPC has done all for it, which it has some time after Finish. Thread-safe,
// as its base is, but for Enter.
class CountedReactor final : public grpc::ServerUnaryReactor {
 public:
  // OK: counted from now on. Else as ActiveCalls::Enter, and the call is to be finished with that.
  // `calls` outlives the server. Requires: called once at most, and before anybody may call Finish.
  absl::Status Enter(ActiveCalls* calls) {
    absl::Status status = calls->Enter();
    if (status.ok()) calls_ = calls;
    return status;
  }

  void OnDone() override {
    if (calls_ != nullptr) calls_->Leave();
    delete this;
  }

 private:
  ~CountedReactor() override = default;

  ActiveCalls* calls_ = nullptr;  // null: not counted
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_COUNTED_REACTOR_H_
