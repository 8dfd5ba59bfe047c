// Prepare: converts a client's request, and the session that it continues, to prompt tokens and
// resolved parameters.
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
  absl::Time now;           // value of strftime_now if the request sets none
  uint64_t drawn_seed = 0;  // seed for a request that sets none
  absl::string_view salt;   // for block hashes
};

// Thread-safe.
//
// A first turn is tokenised whole. A later TOKENS turn is tokenised alone and appended. For a later
// CHAT turn, the whole conversation is rendered. The text after the last stored message is
// tokenised and appended, so generated tokens do not change. If the template renders the stored
// part differently from the log, the whole prompt is tokenised, and the log is kept up to the first
// different token.
//
// Errors: INVALID_ARGUMENT (a field, an id outside the vocabulary, a prompt longer than the
// context), FAILED_PRECONDITION (the session is full; the model has no chat template; since_us),
// UNIMPLEMENTED (the template uses unsupported features).
absl::StatusOr<worker::v1::PrepareResponse> Prepare(const worker::v1::PrepareRequest& request,
                                                    const PrepareContext& context);

// INVALID_ARGUMENT if a text of this size cannot fit into the context with any tokenisation. Does
// not tokenise the text.
absl::Status CheckTextFits(const WorkerModel& model, size_t bytes);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_WORKER_PROMPT_H_
