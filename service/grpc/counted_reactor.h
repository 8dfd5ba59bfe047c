// CountedReactor: a unary RPC that ActiveCalls counts until the kernel has all bytes of its
// response. If the call were counted only until Finish, a shutdown could truncate a response that
// still waits for the client's flow control.
#ifndef TIDEPOOL_SERVICE_GRPC_COUNTED_REACTOR_H_
#define TIDEPOOL_SERVICE_GRPC_COUNTED_REACTOR_H_

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "service/base/active_calls.h"

namespace tidepool::service {

// Deletes itself some time after Finish, when gRPC no longer uses it. Thread-safe like its base
// class, except for Enter.
class CountedReactor final : public grpc::ServerUnaryReactor {
 public:
  // If this returns OK, the call is counted from now on. Otherwise it returns the error of
  // ActiveCalls::Enter, and the caller must finish the call with this error. `calls` must outlive
  // the server. Requires: called at most once, before Finish can be called.
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

  ActiveCalls* calls_ = nullptr;  // null: the call is not counted
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_GRPC_COUNTED_REACTOR_H_
