// ResponseCollector: collects all messages of a generation into one response.
#ifndef TIDEPOOL_SERVICE_FRONT_RESPONSE_COLLECTOR_H_
#define TIDEPOOL_SERVICE_FRONT_RESPONSE_COLLECTOR_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "service/base/event_loop.h"
#include "service/base/response_budget.h"
#include "service/front/generation.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// Use it on the loop only. Deletes itself when the generation has ended.
class ResponseCollector final : public GenerationSink {
 public:
  using Done = std::function<void(absl::StatusOr<v1::CompleteResponse>)>;

  // `whole` counts the memory of the response. `loop` and `whole` must live until `done` has been
  // called.
  ResponseCollector(Executor* loop, WholeResponse* whole, Done done);

  // Sets the number of choices. Call it before the first message. Requires: count >= 1.
  void SetCompletions(int32_t count);
  void Attach(const std::shared_ptr<ResponseStream>& stream) { stream_ = stream; }

  void Write(v1::GenerateResponse response) override;
  void Finish(absl::Status status) override;

 private:
  void TakePrompt(v1::GenerateResponse* response);
  absl::Status Grow(int64_t bytes);
  // Cancels the generation, so that the response ends with this status.
  void Stop(absl::Status status);

  Executor* loop_;
  WholeResponse* whole_;
  Done done_;
  std::weak_ptr<ResponseStream> stream_;
  v1::CompleteResponse response_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_RESPONSE_COLLECTOR_H_
