// ComputePerplexity: measures how well a model predicts a text. The method is the same as in
// llama.cpp's `perplexity`, so that results are comparable. The text is split into chunks of equal
// length. The tokens in the second half of each chunk are scored, given all tokens before them in
// the chunk.
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
  int64_t chunks = 0;     // maximum number of chunks; 0: no limit
  // If set, replaces the first token of every chunk. Use BOS for a model that was trained with BOS.
  std::optional<int32_t> first_token;
  // Called after each chunk. May be empty.
  std::function<void(int64_t chunks_done, int64_t chunks)> progress;
};

struct Perplexity {
  double perplexity = 0;      // exp(mean negative log-likelihood)
  double standard_error = 0;  // standard error of the perplexity
  int64_t chunks = 0;
  int64_t tokens = 0;  // number of tokens that were scored
};

// Scores `ids`, which are split into whole chunks. Returns INVALID_ARGUMENT if there are fewer
// tokens than two chunks have, or if the context is less than 4 or larger than the model's. Returns
// INTERNAL if a logit is not a finite number. The thread contract is that of Model::Forward.
absl::StatusOr<Perplexity> ComputePerplexity(TransformerModel* model, absl::Span<const int32_t> ids,
                                             const PerplexityOptions& options);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_EVALUATION_PERPLEXITY_H_
