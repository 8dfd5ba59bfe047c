// Batch: the input of one forward pass, as spans of rows. Prefill, chunks, decode, verify, denoise
// and image rows only differ in the contents of a RowSpan.
#ifndef TIDEPOOL_ENGINE_MODEL_BATCH_H_
#define TIDEPOOL_ENGINE_MODEL_BATCH_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "moe/policy/placement_policy.h"

namespace tidepool::engine {

// Attention of more rows is computed in parts. This is not possible for rows that see later rows.
inline constexpr int64_t kMaxAttentionRows = 512;

// Consecutive rows of one sequence.
struct RowSpan {
  // KV slot of the first row. Row i uses slot first_slot + i.
  int64_t first_slot = 0;
  // One id per row. Requires: not empty, each in [0, vocab_size).
  std::vector<int32_t> token_ids;
  // The most slots that the sequence can have at its end. 0: unknown. See Model::short_slots.
  int64_t slot_limit = 0;
  // RoPE position of each row. Empty: the row's KV slot.
  std::vector<int64_t> positions;
  // Requires: if not causal, at most kMaxAttentionRows rows.
  kernels::Mask mask = kernels::Mask::kCausal;
  // The request of these rows and their phase, for statistics. No result depends on them.
  int64_t request = 0;
  moe::Phase phase = moe::Phase::kDecode;
  // Ascending indices of rows whose logits are requested,
  std::vector<int32_t> logit_rows;
  // or, if this is above 0, only their argmax among token ids [0, argmax_vocab). All spans of a
  // batch with a value above 0 must have the same value.
  int32_t argmax_vocab = 0;
  // Block table of each KV group, for slots [0, first_slot + rows). Borrowed from a KvLease.
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
  // Number of requested rows of logits, and of requested argmax rows.
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

// The result of a forward pass. Lives in its Workspace until the next pass.
struct StepOutput {
  // [batch.logit_rows(), vocab_size]: spans in order, and the requested rows of each in order.
  kernels::ConstMatrixView logits;
  // [batch.argmax_rows()], in the same order.
  absl::Span<const kernels::ArgMax> best;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_MODEL_BATCH_H_
