// Statuses between Abseil and gRPC, and what a worker's metadata says about one.
#ifndef TIDEPOOL_SERVICE_GRPC_STATUS_H_
#define TIDEPOOL_SERVICE_GRPC_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace tidepool::service {

// Codes are the same numbers on both sides. Messages are cut to what a header holds. A
// base::RetryAfterOf hint goes along as google.rpc.RetryInfo.
grpc::Status ToGrpcStatus(const absl::Status& status);
absl::Status FromGrpcStatus(const grpc::Status& status);

// Key of the trailing metadata of a Run whose status is the worker's own word: what gRPC makes up
// when a connection breaks has the same codes. Its value: of a worker that stays, and of one that
// drains and refused the run or gave it up.
inline constexpr char kToldByWorker[] = "tidepool-told-by-worker";
inline constexpr char kWorkerStays[] = "1";
inline constexpr char kWorkerDrains[] = "drains";
// Key of the initial metadata that a worker sends at once when it takes a Prepare or a Run: without
// it a call that fails never got there.
inline constexpr char kTakenByWorker[] = "tidepool-taken-by-worker";
// Key of the metadata of a Detokenize that the front itself needs, for a request of this principal.
inline constexpr char kForRequestOf[] = "tidepool-for-request-of-bin";

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_GRPC_STATUS_H_
