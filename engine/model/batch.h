// Batch: the input of one forward pass. It consists of spans of rows. A RowSpan describes rows of
// any use: a whole prompt, a chunk of a prompt, decoding, or several tokens that are verified
// together.
#ifndef TIDEPOOL_ENGINE_MODEL_BATCH_H_
#define TIDEPOOL_ENGINE_MODEL_BATCH_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/recurrent_state.h"
#include "moe/policy/placement_policy.h"

namespace tidepool::engine {

// Maximum number of rows whose attention is computed at once. If a pass has more rows, attention is
// computed in parts. Parts are not possible for rows that see later rows.
inline constexpr int64_t kMaxAttentionRows = 512;

// Consecutive rows of one sequence.
struct RowSpan {
  // The KV slot of the first row. Row i uses the slot first_slot + i.
  int64_t first_slot = 0;
  // The token id of each row. Requires: at least one row, and each id is in [0, vocab_size).
  std::vector<int32_t> token_ids;
  // The maximum number of slots that the sequence can have at its end. 0: unknown.
  // Model::short_slots explains its use.
  int64_t slot_limit = 0;
  // The RoPE position of each row. If empty, a row's position is its KV slot.
  std::vector<int64_t> positions;
  // Requires: a span that is not causal has at most kMaxAttentionRows rows.
  kernels::Mask mask = kernels::Mask::kCausal;
  // The request that the rows belong to, and their phase. They are only used for statistics and
  // predictions, and do not change results.
  int64_t request = 0;
  moe::Phase phase = moe::Phase::kDecode;
  // Indices of the rows whose logits are requested, in ascending order.
  std::vector<int32_t> logit_rows;
  // If above 0, only the argmax of these logits is computed, among the token ids [0, argmax_vocab).
  // All spans of a batch whose value is above 0 must have the same value.
  int32_t argmax_vocab = 0;
  // The block table of each KV group, for the slots [0, first_slot + rows). The tables are owned by
  // a KvLease.
  std::vector<absl::Span<const int32_t>> blocks;
  // The blocks of the recurrent state before the rows (empty: the state is zero) and after them. A
  // snapshot is a state after some of the rows; its number of rows is above 0 and less than rows().
  // Snapshots are in ascending order. All three members are empty if the model has no recurrent
  // state.
  absl::Span<const int32_t> state_in;
  absl::Span<const int32_t> state_out;
  std::vector<kernels::StateSnapshot> state_snapshots;

  int64_t rows() const { return static_cast<int64_t>(token_ids.size()); }
};

struct Batch {
  std::vector<RowSpan> spans;

  int64_t rows() const {
    int64_t total = 0;
    for (const RowSpan& span : spans) total += span.rows();
    return total;
  }
  // logit_rows() is the number of rows whose logits are requested. argmax_rows() is the number of
  // rows of which only the argmax is requested.
  int64_t logit_rows() const { return WantedRows(/*argmax=*/false); }
  int64_t argmax_rows() const { return WantedRows(/*argmax=*/true); }

 private:
  int64_t WantedRows(bool argmax) const {
    int64_t total = 0;
    for (const RowSpan& span : spans) {
      if ((span.argmax_vocab > 0) == argmax) total += static_cast<int64_t>(span.logit_rows.size());
    }
    return total;
  }
};

// The result of a forward pass, in the host's memory. It is valid until the next pass of the model,
// and as long as the pass's workspace.
struct StepOutput {
  // [batch.logit_rows(), vocab_size]: the spans in order, and in each span its requested rows in
  // order.
  kernels::ConstMatrixView logits;
  // [batch.argmax_rows()], in the same order.
  absl::Span<const kernels::ArgMax> argmax;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_MODEL_BATCH_H_
