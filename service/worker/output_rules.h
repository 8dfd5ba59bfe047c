// ConstrainOutput: makes the grammar of a response, and its limit on reasoning, from what a request
// says about its output.
#ifndef TIDEPOOL_SERVICE_WORKER_OUTPUT_RULES_H_
#define TIDEPOOL_SERVICE_WORKER_OUTPUT_RULES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/sampling/request.h"
#include "service/worker/worker_model.h"
#include "tidepool/v1/inference.pb.h"
#include "tidepool/worker/v1/worker.pb.h"

namespace tidepool::service {

// Sets the grammar and the reasoning limit of `request`, whose tokens are already set. The result
// depends only on the model, the prompt and `start`, so that all workers set the same.
//
// A constraint applies to what follows the reasoning. If a tool call is required, the response has
// only calls, and a constraint has no effect. If calls are possible, the response either has calls
// or matches the constraint.
//
// Returns INVALID_ARGUMENT if the rules cannot be enforced, and UNIMPLEMENTED if the model has no
// cache of grammars. Thread-safe.
absl::Status ConstrainOutput(const WorkerModel& model, const worker::v1::Start& start,
                             engine::GenerationRequest* request);

// Where ConstrainOutput should run.
enum class OutputWork : uint8_t {
  kNone,   // it would do nothing and return OK
  kShort,  // it will probably compile nothing
  kLong,   // it may compile a grammar
};

// Takes little time. The result can be kShort although a grammar must be compiled: if the cache has
// the grammar only for prompts with another ReasoningStart, or drops it before ConstrainOutput
// runs.
OutputWork WorkFor(const WorkerModel& model, const worker::v1::Start& start);

// Returns the error that ConstrainOutput will return for the request with this prompt.
// `in_reasoning` is as in PrepareResponse. The compiled grammar stays in the model's cache, and
// ConstrainOutput finds it there.
absl::Status CheckOutputRules(const WorkerModel& model, const v1::GenerateRequest& request,
                              absl::Span<const int32_t> prompt, bool in_reasoning);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_WORKER_OUTPUT_RULES_H_
