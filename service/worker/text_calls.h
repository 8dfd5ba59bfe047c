// The logic of the worker's RPCs Tokenize and Detokenize, without gRPC.
#ifndef TIDEPOOL_SERVICE_WORKER_TEXT_CALLS_H_
#define TIDEPOOL_SERVICE_WORKER_TEXT_CALLS_H_

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "service/worker/worker_model.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// Thread-safe. `now` is the time that the chat template gets.
absl::StatusOr<v1::TokenizeResponse> TokenizeFor(const WorkerModel& model,
                                                 const v1::TokenizeRequest& request,
                                                 absl::Time now);
absl::StatusOr<v1::DetokenizeResponse> DetokenizeFor(const WorkerModel& model,
                                                     const v1::DetokenizeRequest& request);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_WORKER_TEXT_CALLS_H_
