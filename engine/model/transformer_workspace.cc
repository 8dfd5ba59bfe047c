// TransformerModel::WorkspaceBytes: the arena size of one Forward, part by part in the order of
// transformer.cc.
#include <algorithm>

#include "engine/model/transformer.h"
#include "kernels/ops.h"

namespace tidepool::engine {
namespace {

using kernels::ActivationBytes;

// One allocation of `count` elements of 4 bytes.
size_t WordBytes(int64_t count) { return count * sizeof(float) + kernels::kAlignment; }

kernels::KvLayer KvLayerOf(const KvSpec& spec) {
  return {.dtype = spec.dtype,
          .kv_heads = spec.kv_heads,
          .k_dim = spec.k_dim,
          .v_dim = spec.v_dim,
          .values_in_keys = spec.values_in_keys};
}

// q, k and v of an attention layer, or all of MLA's products.
size_t ProjectionBytes(const LayerConfig& layer, int64_t rows) {
  const int64_t heads = layer.heads;
  const int64_t stored = rows * layer.head_dim;
  if (!layer.has_mla()) return WordBytes(heads * stored) + 2 * WordBytes(layer.kv_heads * stored);
  const MlaConfig& mla = layer.mla;
  return WordBytes(stored) + WordBytes(rows * heads * (mla.nope_dim + mla.rope_dim)) +
         WordBytes(rows * mla.q_rank) + ActivationBytes(rows, mla.q_rank) +
         WordBytes(rows * heads * mla.nope_dim) + ActivationBytes(rows, heads * mla.nope_dim) +
         WordBytes(rows * heads * mla.kv_rank) + WordBytes(heads * stored) +
         WordBytes(rows * heads * mla.value_dim) + ActivationBytes(rows, heads * mla.value_dim);
}

}  // namespace

size_t TransformerModel::WorkspaceBytes(const BatchLimits& limits) const {
  const int64_t rows = limits.rows;
  const int64_t hidden = config_.hidden_size;
  size_t rotations = inv_freq_.size() * sizeof(Rotation) + kernels::kAlignment;
  for (const std::vector<double>& frequencies : inv_freq_) {
    rotations += 2 * WordBytes(rows * static_cast<int64_t>(frequencies.size()));
  }
  // Each span has at least one row. Begin's other allocations are smaller than attention's rows.
  const size_t shared =
      WordBytes(rows * hidden) + rotations + rows * sizeof(kernels::KvSpan) + kernels::kAlignment +
      rows * (sizeof(moe::Phase) + sizeof(int64_t) + sizeof(int32_t)) + 3 * kernels::kAlignment;

  const int64_t terms = HeadHasTwoTerms() ? 2 : 1;
  size_t most = WordBytes(limits.logit_rows * hidden) + ActivationBytes(limits.logit_rows, hidden) +
                WordBytes(limits.logit_rows * config_.vocab_size) +
                limits.logit_rows * sizeof(kernels::ArgMax) +
                kernels::HeadBytes(limits.logit_rows, backend_->threads());
  if (HeadHasTwoTerms()) most += ActivationBytes(terms * limits.logit_rows, hidden);
  for (size_t i = 0; i < config_.layers.size(); ++i) {
    const LayerConfig& layer = config_.layers[i];
    const bool plain = FfnBranch(static_cast<int>(i)).plain();  // as attention's
    const int64_t attended = std::min(rows, kMaxAttentionRows);
    const size_t attention =
        (plain ? 0 : WordBytes(attended * hidden)) + ActivationBytes(attended, hidden) +
        ProjectionBytes(layer, attended) +
        AttendBytes(attended, attended, layer.heads, KvLayerOf(kv_specs_[i]), backend_->threads());
    size_t ffn = ActivationBytes(rows, hidden) + (plain ? 0 : WordBytes(rows * hidden));
    if (layer.ffn == FfnKind::kDense) {
      ffn += ActivationBytes(rows, layer.ffn_width);
    } else {
      const MoeConfig& moe = config_.moe;
      ffn += WordBytes(rows * moe.experts) + 2 * WordBytes(rows * moe.experts_used);
      const size_t routed = expert_scheduler_->WorkspaceBytes({.tokens = rows,
                                                               .experts = moe.experts,
                                                               .top_k = moe.experts_used,
                                                               .hidden = hidden,
                                                               .width = moe.expert_width});
      const size_t shared_expert = moe.shared_width == 0
                                       ? 0
                                       : WordBytes(rows) + WordBytes(rows * hidden) +
                                             ActivationBytes(rows, moe.shared_width);
      ffn += std::max(routed, shared_expert);
      const int64_t foretold = std::min(rows, kMaxHintRows);
      ffn += ActivationBytes(foretold, hidden) + WordBytes(foretold * moe.experts) +
             2 * WordBytes(foretold * moe.experts_used);
    }
    most = std::max({most, attention, ffn});
  }
  return shared + most;
}

}  // namespace tidepool::engine
