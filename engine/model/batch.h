// Batch of Spans: what one forward pass computes. Prefill, a chunk of it, decode, verify, denoise
// and image rows differ only in what a RowSpan holds.
#ifndef TIDEPOOL_ENGINE_MODEL_BATCH_H_
#define TIDEPOOL_ENGINE_MODEL_BATCH_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "moe/policy/placement_policy.h"

namespace tidepool::engine {

// Attention of more rows is computed in parts, which rows that see what comes after them cannot be.
inline constexpr int64_t kMaxAttentionRows = 512;

// Consecutive rows of one sequence.
struct RowSpan {
  // KV slot of the first row; row i takes slot first_slot + i.
  int64_t first_slot = 0;
  // One id per row. Requires: not empty, each in [0, vocab_size).
  std::vector<int32_t> token_ids;
  // RoPE position of each row; empty: the row's KV slot.
  std::vector<int64_t> positions;
  // Requires: at most kMaxAttentionRows rows where it is not causal.
  kernels::Mask mask = kernels::Mask::kCausal;
  // Whose rows these are and what they are for; no result depends on either.
  int64_t request = 0;
  moe::Phase phase = moe::Phase::kDecode;
  // Rows of this span, ascending, whose logits are wanted,
  std::vector<int32_t> logit_rows;
  // or, where this is above 0, only the best among those of token ids [0, argmax_vocab). The same
  // for all spans of a batch where it is not 0.
  int32_t argmax_vocab = 0;
  // Block table of each KV group; covers slots [0, first_slot + rows). Borrowed from a KvLease.
  std::vector<absl::Span<const int32_t>> blocks;

  int64_t rows() const { return static_cast<int64_t>(token_ids.size()); }
};

struct Batch {
  std::vector<RowSpan> spans;

  int64_t rows() const {
    int64_t total = 0;
    for (const RowSpan& span : spans) total += span.rows();
    return total;
  }
  // Of spans that want whole rows of logits, and of those that want the best alone.
  int64_t logit_rows() const { return WantedRows(/*best=*/false); }
  int64_t argmax_rows() const { return WantedRows(/*best=*/true); }

 private:
  int64_t WantedRows(bool best) const {
    int64_t total = 0;
    for (const RowSpan& span : spans) {
      if ((span.argmax_vocab > 0) == best) total += static_cast<int64_t>(span.logit_rows.size());
    }
    return total;
  }
};

// What a forward pass returns; lives in its Workspace until the next one.
struct StepOutput {
  // [batch.logit_rows(), vocab_size]: spans in order, wanted rows of each in order.
  kernels::ConstMatrixView logits;
  // [batch.argmax_rows()], in the same order.
  absl::Span<const kernels::ArgMax> best;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_MODEL_BATCH_H_
