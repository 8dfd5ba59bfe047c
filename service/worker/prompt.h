// Prepare: a client's request, and the session that it continues, to prompt tokens and resolved
// parameters.
#ifndef TIDEPOOL_SERVICE_WORKER_PROMPT_H_
#define TIDEPOOL_SERVICE_WORKER_PROMPT_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "service/worker/worker_model.h"
#include "tidepool/worker/v1/worker.pb.h"

namespace tidepool::service {

struct PrepareContext {
  const WorkerModel* model = nullptr;
  absl::Time now;           // what strftime_now tells where the request does not say it
  uint64_t drawn_seed = 0;  // for a request that sets none
  absl::string_view salt;   // of block hashes
};

// Thread-safe.
//
// A first turn is tokenised whole. A later TOKENS turn is tokenised alone and appended. Of a later
// CHAT turn the whole conversation is rendered, and what stands behind the last stored message is
// tokenised and appended, so that generated tokens stay as they were made; a template that renders
// the stored part otherwise than the log has it makes the prompt anew, and the log is kept up to
// the first token that differs.
//
// Errors: INVALID_ARGUMENT (a field, an id outside the vocabulary, a prompt past the context),
// FAILED_PRECONDITION (the session is full; the model has no chat template; since_us), UNIMPLEMENTED
// (a template past what we know).
absl::StatusOr<worker::v1::PrepareResponse> Prepare(const worker::v1::PrepareRequest& request,
                                                    const PrepareContext& context);

// INVALID_ARGUMENT when a text of so many bytes cannot fit the context however it is tokenised:
// told without tokenising it.
absl::Status CheckTextFits(const WorkerModel& model, size_t bytes);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_WORKER_PROMPT_H_
