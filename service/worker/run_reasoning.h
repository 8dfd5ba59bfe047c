// RunReasoning: counts the reasoning tokens of a run, for its usage.
#ifndef TIDEPOOL_SERVICE_WORKER_RUN_REASONING_H_
#define TIDEPOOL_SERVICE_WORKER_RUN_REASONING_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "service/tools/reasoning_counter.h"
#include "service/worker/worker_model.h"
#include "tidepool/worker/v1/worker.pb.h"

namespace tidepool::service {

// Thread-compatible. The count depends only on the model, the prompt and the output tokens.
class RunReasoning {
 public:
  // `model` must outlive this object.
  explicit RunReasoning(const WorkerModel* model) : model_(*model) {}

  // Adds the output tokens of earlier attempts. The responses to prompts that are not chats have no
  // reasoning.
  void OnStart(const worker::v1::Start& start);
  // Adds the next output tokens.
  void Add(absl::Span<const int32_t> tokens);
  // Number of reasoning tokens so far.
  int64_t tokens() const { return counter_.has_value() ? counter_->tokens() : 0; }

 private:
  const WorkerModel& model_;
  std::optional<ReasoningCounter> counter_;  // unset: the response has no reasoning
  std::vector<int32_t> markers_;             // the control tokens that are markers
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_WORKER_RUN_REASONING_H_
