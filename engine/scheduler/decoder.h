// Decoder: determines how a sequence grows. It creates the next RowSpan, and converts the results
// of its rows to final tokens. Streams, logs and hashes only see final tokens.
#ifndef TIDEPOOL_ENGINE_SCHEDULER_DECODER_H_
#define TIDEPOOL_ENGINE_SCHEDULER_DECODER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/model/batch.h"
#include "engine/sampling/sampler.h"
#include "engine/scheduler/sequence.h"
#include "kernels/backend.h"
#include "kernels/tensor.h"

namespace tidepool::engine {

// A cursor over the output of a step. It advances span by span.
class OutputCursor {
 public:
  explicit OutputCursor(const StepOutput& output) : output_(output) {}

  // Return the next row of logits, or the next argmax.
  absl::Span<const float> NextLogits() {
    return absl::MakeConstSpan(output_.logits.Row(logit_row_++), output_.logits.cols);
  }
  // The number of the next row of logits. GoToLogits sets this number.
  int64_t logit_row() const { return logit_row_; }
  void GoToLogits(int64_t row) { logit_row_ = row; }
  const kernels::ArgMax& NextArgMax() { return output_.argmax[argmax_row_++]; }

 private:
  const StepOutput output_;
  int64_t logit_row_ = 0;
  size_t argmax_row_ = 0;
};

// The result of one span. Plain data.
struct SpanOutput {
  // log-probabilities of prompt tokens, from Sequence::prompt_reported on
  std::vector<TokenLogprob> prompt;
  std::vector<SampledToken> tokens;  // the next output tokens
  // The constraint's mask is not ready, so no token was sampled. The span's rows must not be
  // committed, and are computed again later.
  bool deferred = false;
};

// Engine thread only.
class Decoder {
 public:
  virtual ~Decoder() = default;

  // Number of rows that must be computed before the next token; at least 1.
  virtual int64_t PendingRows(const Sequence& sequence) const = 0;

  // Maximum number of rows of this sequence in one span such that at most `logit_rows` of them need
  // logits; at least 1. Requires: logit_rows >= 1.
  virtual int64_t RowsWithin(const Sequence& sequence, int64_t logit_rows) const = 0;

  // Returns a span of the next rows, at most `max_rows`, without block tables. Requires: max_rows
  // >= 1.
  virtual RowSpan NextSpan(const Sequence& sequence, int64_t max_rows) const = 0;

  // Returns the result of `span`. The rows that the span requested are the next rows in `output`,
  // and `output` always moves past these. Does not change the sequence. Returns the errors of
  // Sampler.
  virtual absl::StatusOr<SpanOutput> Accept(const Sequence& sequence, const RowSpan& span,
                                            OutputCursor* output) = 0;
};

// A decoder that computes one token per forward pass. Tokens are sampled from the first
// `vocab_size` logits.
std::unique_ptr<Decoder> MakeAutoregressiveDecoder(int vocab_size);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_DECODER_H_
