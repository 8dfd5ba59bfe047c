// Prepare: converts a client's request, and the log of the session that it continues, to prompt
// tokens and complete parameters.
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
  absl::Time now;           // the time for the template's strftime_now, if the request sets none
  uint64_t drawn_seed = 0;  // the seed, if the request sets none
  absl::string_view salt;   // salt of the hashes of KV blocks
};

// Thread-safe.
//
// The first turn of a session is tokenised as a whole. A later turn with text or token ids is
// tokenised alone and appended to the log. For a later chat turn, the whole conversation is
// rendered, but only the text after the last stored message is tokenised and appended. So the
// tokens that the model generated do not change. If the rendering of the stored messages differs
// from the log, the whole prompt is tokenised. The log is then kept up to the first different
// token.
//
// Errors: INVALID_ARGUMENT if a field is invalid, a token id is outside the vocabulary, or the
// prompt is longer than the context. FAILED_PRECONDITION if the session is full, the model has no
// chat template, or the template now renders another text than at the time since_us. UNIMPLEMENTED
// if the template uses features that are not supported.
absl::StatusOr<worker::v1::PrepareResponse> Prepare(const worker::v1::PrepareRequest& request,
                                                    const PrepareContext& context);

// INVALID_ARGUMENT if no text of this size can fit into the context, however it is tokenised. The
// text itself is not needed.
absl::Status CheckTextFits(const WorkerModel& model, size_t bytes);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_WORKER_PROMPT_H_
