// Decoder: how a sequence grows. Makes its next RowSpan and turns the rows that come back into
// final tokens; only those reach sinks, logs and hashes.
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

// Walks through a step's output, span by span.
class OutputCursor {
 public:
  explicit OutputCursor(const StepOutput& output) : output_(output) {}

  // The next row of logits, or the next best.
  absl::Span<const float> NextLogits() {
    return absl::MakeConstSpan(output_.logits.Row(logit_row_++), output_.logits.cols);
  }
  // The number of the next row of logits, and going on at another one.
  int64_t logit_row() const { return logit_row_; }
  void GoToLogits(int64_t row) { logit_row_ = row; }
  const kernels::ArgMax& NextArgMax() { return output_.best[best_row_++]; }

 private:
  const StepOutput output_;
  int64_t logit_row_ = 0;
  size_t best_row_ = 0;
};

// What follows from one span. Plain data.
struct SpanOutput {
  std::vector<TokenLogprob> prompt;  // of the prompt tokens from Sequence::prompt_told on
  std::vector<SampledToken> tokens;  // the next ones
};

// Engine thread only.
class Decoder {
 public:
  virtual ~Decoder() = default;

  // Rows that must be computed before the next token; at least 1.
  virtual int64_t PendingRows(const Sequence& sequence) const = 0;

  // The most rows of this sequence in one span of which no more than `logit_rows` want logits: at
  // least 1. Requires: logit_rows >= 1.
  virtual int64_t RowsWithin(const Sequence& sequence, int64_t logit_rows) const = 0;

  // The next rows, at most `max_rows` of them, without block tables. Requires: max_rows >= 1.
  virtual RowSpan NextSpan(const Sequence& sequence, int64_t max_rows) const = 0;

  // What follows from the rows that the span wanted, which come next in `output`. Does not change
  // the sequence. Errors are the Sampler's; `output` is behind the span's rows then, too.
  virtual absl::StatusOr<SpanOutput> Accept(const Sequence& sequence, const RowSpan& span,
                                            OutputCursor* output) = 0;
};

// One token per forward pass. Tokens are drawn from the first `vocab_size` logits.
std::unique_ptr<Decoder> MakeAutoregressiveDecoder(int vocab_size);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_DECODER_H_
