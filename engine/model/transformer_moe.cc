// TransformerModel: the gate and the experts of a layer.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "engine/model/linear.h"
#include "engine/model/transformer.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {

using kernels::Activation;
using kernels::MatrixView;

// On a device, waits for the gate.
absl::StatusOr<TransformerModel::Gated> TransformerModel::Gate(int layer, const Pass& pass) const {
  const MoeWeights& w = weights_.layers[layer].moe;
  const MoeConfig& moe = config_.moe;
  const kernels::GateSpec gate = {.experts = moe.experts,
                                  .top_k = moe.experts_used,
                                  .normalize = moe.normalize_weights,
                                  .score = moe.score,
                                  .selection_bias = w.selection_bias,
                                  .groups = moe.groups,
                                  .groups_kept = moe.groups_used,
                                  .group_score = moe.group_score,
                                  .scale = moe.weights_scale,
                                  .normalize_epsilon = moe.normalize_epsilon};
  const int64_t rows = pass.x.rows;
  const Activation x = FfnBranch(layer, pass).Input(pass.x, pass.arena);
  const MatrixView logits = pass.arena->AllocateMatrix(rows, gate.experts);
  const int64_t pairs = rows * gate.top_k;
  auto* const ids = pass.arena->Allocate<int32_t>(pairs);
  auto* const weights = pass.arena->Allocate<float>(pairs);
  Multiply(pass.backend, x, {w.router.Into(logits)});
  pass.backend->Gate(logits, gate, ids, weights);
  Gated gated = {x, ids, weights, {}};
  if (on_host_ || pass.dry()) return gated;
  // One copy of both arrays and of the gap between them.
  const auto* const begin = reinterpret_cast<const std::byte*>(ids);
  const auto* const second = reinterpret_cast<const std::byte*>(weights);
  gated.copy.resize(second - begin + pairs * sizeof(float));
  RETURN_IF_ERROR(pass.backend->CopyOut(begin, absl::MakeSpan(gated.copy)));
  gated.ids = reinterpret_cast<const int32_t*>(gated.copy.data());
  gated.weights = reinterpret_cast<const float*>(gated.copy.data() + (second - begin));
  return gated;
}

absl::Status TransformerModel::MoeFfn(int layer, const Pass& pass) const {
  const Branch branch = FfnBranch(layer, pass);
  MatrixView out = pass.x;
  if (!branch.plain()) {
    out = pass.arena->AllocateMatrix(out.rows, out.cols);
    pass.backend->Zero(out);
  }
  ASSIGN_OR_RETURN(const Gated gated, Gate(layer, pass));
  RETURN_IF_ERROR(RoutedExperts(layer, pass, gated, out));
  if (config_.moe.shared_width > 0) {
    SharedExpert(weights_.layers[layer].moe, pass, gated.x, out);
  }
  if (!branch.plain()) branch.Add(out, pass.x);
  return absl::OkStatus();
}

// Adds the outputs of the chosen experts to `out`.
absl::Status TransformerModel::RoutedExperts(int layer, const Pass& pass, const Gated& gated,
                                             MatrixView out) const {
  absl::Status predicted;
  const auto predict = [&] { predicted = PrefetchHint(layer + 1, pass); };
  if (pass.dry()) {
    expert_scheduler_->Measure({.tokens = out.rows,
                                .top_k = config_.moe.experts_used,
                                .hidden = out.cols,
                                .expert = &weights_.layers[layer].moe.experts[0],
                                .asked = predict},
                               pass.backend, pass.arena);
    return absl::OkStatus();
  }
  const moe::Routing routing = {.moe_layer = moe_layer_[layer],
                                .top_k = config_.moe.experts_used,
                                .ids = gated.ids,
                                .weights = gated.weights,
                                .step = forwards_ - 1,
                                .phases = pass.rows->phases,
                                .requests = pass.rows->requests,
                                .asked = predict};
  absl::Status computed = expert_scheduler_->Run(routing, gated.x, out, pass.arena);
  const moe::ExpertLookups lookups = expert_scheduler_->TakeLookups();
  pass.live->expert_counts_.hits += lookups.hits;
  pass.live->expert_counts_.misses += lookups.misses;
  RETURN_IF_ERROR(computed);
  return predicted;
}

// Predicts the experts of a layer, and passes the prediction to the source as a hint. The
// prediction applies the layer's gate to the residual stream before the FFN of the previous layer.
// This usually differs little from the gate's real input.
absl::Status TransformerModel::PrefetchHint(int layer, const Pass& pass) const {
  if (!pass.dry() && !expert_source_->WantsHints()) return absl::OkStatus();
  if (pass.x.rows > kMaxHintRows) return absl::OkStatus();
  if (layer >= static_cast<int>(config_.layers.size())) return absl::OkStatus();
  if (config_.layers[layer].ffn != FfnKind::kMoe) return absl::OkStatus();
  const int64_t rows = pass.x.rows;
  const int top_k = config_.moe.experts_used;
  const size_t mark = pass.arena->used();
  ASSIGN_OR_RETURN(const Gated gated, Gate(layer, pass));
  pass.arena->ResetTo(mark);
  if (pass.dry()) return absl::OkStatus();
  // The first choices of all rows come first, then the second choices, and so on.
  std::vector<int32_t> expected;
  for (int choice = 0; choice < top_k; ++choice) {
    for (int64_t row = 0; row < rows; ++row) expected.push_back(gated.ids[row * top_k + choice]);
  }
  expert_source_->PrefetchHint(moe_layer_[layer], expected);
  return absl::OkStatus();
}

// Adds the shared expert's output to `out`.
void TransformerModel::SharedExpert(const MoeWeights& weights, const Pass& pass,
                                    const Activation& x, MatrixView out) const {
  const Linear down = {weights.shared.down, weights.shared.down_bias};
  if (!config_.moe.shared_gate) {
    return Multiply(pass.backend, pass.backend->MatMulGlu(x, weights.shared, pass.arena),
                    {down.AddTo(out)});
  }
  const MatrixView gate = pass.arena->AllocateMatrix(out.rows, 1);
  const MatrixView product = pass.arena->AllocateMatrix(out.rows, out.cols);
  Multiply(pass.backend, x, {weights.shared_gate.Into(gate)});
  const Activation inner = pass.backend->MatMulGlu(x, weights.shared, pass.arena);
  Multiply(pass.backend, inner, {down.Into(product)});
  pass.backend->AddGated(product, absl::MakeConstSpan(gate.data, gate.rows), out);
}

}  // namespace tidepool::engine
