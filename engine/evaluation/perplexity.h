// ComputePerplexity: how well a model predicts a text. The method is that of llama.cpp's
// `perplexity`, so that results are comparable: the text is cut into chunks of equal length, and
// the tokens of each chunk's second half are scored, given the tokens before them in the chunk.
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
  int64_t context = 512;  // tokens per chunk; at least 4
  int64_t chunks = 0;     // maximum number; 0: all
  // Replaces the first token of every chunk. Set it to BOS for a model that was trained with BOS.
  std::optional<int32_t> first_token;
  // Called after each chunk. May be empty.
  std::function<void(int64_t chunks_done, int64_t chunks)> progress;
};

struct Perplexity {
  double perplexity = 0;      // exp(mean negative log-likelihood)
  double standard_error = 0;  // of the perplexity
  int64_t chunks = 0;
  int64_t tokens = 0;  // number of scored tokens
};

// Scores the whole chunks of `ids`. INVALID_ARGUMENT for fewer than two chunks of text, or a
// context below 4 or larger than the model's. INTERNAL for a logit that is not a finite number.
// Same thread contract as Model::Forward.
absl::StatusOr<Perplexity> ComputePerplexity(TransformerModel* model, absl::Span<const int32_t> ids,
                                             const PerplexityOptions& options);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_EVALUATION_PERPLEXITY_H_
