// TransformerModel: the gate and the experts of a layer.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "engine/model/linear.h"
#include "engine/model/transformer.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {

using kernels::Activation;
using kernels::MatrixView;

// On a device, waits for the gate.
absl::StatusOr<TransformerModel::Gated> TransformerModel::Gate(int layer, const Pass& pass,
                                                               HostX host_x) const {
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
  Gated gated = {.x = x, .ids = ids, .weights = weights};
  if (!on_host_ && !pass.dry()) RETURN_IF_ERROR(CopyGated(pass, host_x, &gated));
  return gated;
}

// Copies ids and weights to the host, and x if requested. One copy costs less than several. So
// there is one copy, which includes all other data between them in the workspace.
absl::Status TransformerModel::CopyGated(const Pass& pass, HostX host_x, Gated* gated) const {
  const kernels::ConstMatrixView x = gated->x.values;
  const auto* const ids = reinterpret_cast<const std::byte*>(gated->ids);
  const auto* const weights = reinterpret_cast<const std::byte*>(gated->weights);
  const auto* const values = reinterpret_cast<const std::byte*>(x.data);
  const std::byte* const begin = host_x == HostX::kCopy ? values : ids;
  CHECK(begin <= ids && ids < weights && x.stride == x.cols);
  const size_t bytes = weights - begin + x.rows * config_.moe.experts_used * sizeof(float);
  gated->copy = std::make_unique_for_overwrite<std::byte[]>(bytes);
  const std::byte* const copy = gated->copy.get();
  RETURN_IF_ERROR(pass.backend->CopyOut(begin, {gated->copy.get(), bytes}));
  gated->ids = reinterpret_cast<const int32_t*>(copy + (ids - begin));
  gated->weights = reinterpret_cast<const float*>(copy + (weights - begin));
  if (host_x == HostX::kCopy) {
    gated->host_x = {reinterpret_cast<const float*>(copy), x.rows, x.cols};
  }
  return absl::OkStatus();
}

absl::Status TransformerModel::MoeFfn(int layer, const Pass& pass) const {
  const Branch branch = FfnBranch(layer, pass);
  MatrixView out = pass.x;
  if (!branch.plain()) {
    out = pass.arena->AllocateMatrix(out.rows, out.cols);
    pass.backend->Zero(out);
  }
  const HostX host_x = expert_scheduler_->UsesHostX(pass.x.rows) ? HostX::kCopy : HostX::kOmit;
  ASSIGN_OR_RETURN(const Gated gated, Gate(layer, pass, host_x));
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
                                .host_x = gated.host_x,
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
  ASSIGN_OR_RETURN(const Gated gated, Gate(layer, pass, HostX::kOmit));
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
