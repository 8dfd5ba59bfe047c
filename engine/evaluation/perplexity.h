// ComputePerplexity: how well a model predicts a text, by the method of llama.cpp's `perplexity`,
// so that figures compare: the text is cut into chunks of equal length, and the tokens of each
// chunk's second half are scored with what precedes them in the chunk.
//
//   ASSIGN_OR_RETURN(const Perplexity result,
//                    ComputePerplexity(bundle->model.get(), ids, {.first_token = bos}));
#ifndef TIDEPOOL_ENGINE_EVALUATION_PERPLEXITY_H_
#define TIDEPOOL_ENGINE_EVALUATION_PERPLEXITY_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/model/transformer.h"

namespace tidepool::engine {

struct PerplexityOptions {
  int64_t context = 512;  // tokens of a chunk; at least 4
  int64_t chunks = 0;     // at most; 0: all
  // Replaces the first token of every chunk: the BOS of a model that is trained with one.
  std::optional<int32_t> first_token;
  // Called after each chunk. May be empty.
  std::function<void(int64_t chunks_done, int64_t chunks)> progress;
};

struct Perplexity {
  double perplexity = 0;      // exp(mean negative log-likelihood)
  double standard_error = 0;  // of the perplexity
  int64_t chunks = 0;
  int64_t tokens = 0;  // scored
};

// Scores the whole chunks of `ids`. INVALID_ARGUMENT: fewer than two chunks of text, a context
// below 4 or past the model's. INTERNAL: a logit that is no finite number. Thread contract: as
// Model::Forward.
absl::StatusOr<Perplexity> ComputePerplexity(TransformerModel* model, absl::Span<const int32_t> ids,
                                             const PerplexityOptions& options);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_EVALUATION_PERPLEXITY_H_
