// CountedReactor: a unary RPC that ActiveCalls counts until its response is in the kernel. If it
// stopped counting at Finish, a shutdown could truncate a response that still waits for the
// client's flow control.
#ifndef TIDEPOOL_SERVICE_GRPC_COUNTED_REACTOR_H_
#define TIDEPOOL_SERVICE_GRPC_COUNTED_REACTOR_H_

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "service/base/active_calls.h"

namespace tidepool::service {

// Deletes itself when gRPC no longer uses it, some time after Finish. Thread-safe like its base
// class, except for Enter.
class CountedReactor final : public grpc::ServerUnaryReactor {
 public:
  // OK: the call is counted from now on. Otherwise returns the error of ActiveCalls::Enter, with
  // which the caller must finish the call. `calls` outlives the server. Requires: called at most
  // once, and before Finish can be called.
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

#endif  // TIDEPOOL_SERVICE_GRPC_COUNTED_REACTOR_H_
