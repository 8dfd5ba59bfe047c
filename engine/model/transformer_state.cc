// TransformerModel: the mixers that have a recurrent state, and the division of a batch into parts
// for them.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "engine/model/linear.h"
#include "engine/model/transformer.h"

namespace tidepool::engine {

using kernels::Activation;
using kernels::MatrixView;
using kernels::StateSnapshot;
using kernels::StateSpan;

namespace {

// Returns `count` columns of x.
MatrixView Columns(MatrixView x, int64_t first, int64_t count) {
  return {x.data + first, x.rows, count, x.stride};
}

// Returns the snapshots after the rows [begin, begin + rows) of a span, counted from `begin`.
std::vector<StateSnapshot> SnapshotsOf(const RowSpan& span, int64_t begin, int64_t rows) {
  std::vector<StateSnapshot> snapshots;
  for (const StateSnapshot& one : span.state_snapshots) {
    if (one.rows <= begin || one.rows > begin + rows) continue;
    snapshots.push_back({.rows = one.rows - begin, .blocks = one.blocks});
  }
  return snapshots;
}

}  // namespace

// Divides the batch into parts of at most kMaxAttentionRows rows, so that the inputs of a part do
// not need much memory. If a span is cut, its later parts continue from the state that the first
// one wrote.
void TransformerModel::CutStateParts(const Batch& batch, std::vector<StatePart>* parts) {
  int64_t first_row = 0;
  for (const RowSpan& span : batch.spans) {
    for (int64_t begin = 0; begin < span.rows();) {
      if (parts->empty() || parts->back().rows == kMaxAttentionRows) {
        parts->push_back({.first_row = first_row});
      }
      StatePart& part = parts->back();
      const int64_t rows = std::min(span.rows() - begin, kMaxAttentionRows - part.rows);
      part.snapshots.push_back(SnapshotsOf(span, begin, rows));
      part.spans.push_back({.first_row = part.rows,
                            .rows = rows,
                            .in = begin == 0 ? span.state_in : span.state_out,
                            .out = span.state_out,
                            .snapshots = part.snapshots.back()});
      part.rows += rows;
      begin += rows;
      first_row += rows;
    }
  }
}

absl::Status TransformerModel::Mix(int layer, const Pass& pass) const {
  const Mixer mixer = config_.layers[layer].mixer;
  if (mixer == Mixer::kAttention) return Attention(layer, pass);
  const size_t mark = pass.arena->used();
  for (const StatePart& part : pass.rows->state_parts) {
    if (mixer == Mixer::kDeltaNet) {
      DeltaNet(layer, pass, part);
    } else {
      ShortConv(layer, pass, part);
    }
    pass.arena->ResetTo(mark);
  }
  return absl::OkStatus();
}

void TransformerModel::DeltaNet(int layer, const Pass& pass, const StatePart& part) const {
  const DeltaNetWeights& w = weights_.layers[layer].delta;
  const DeltaNetConfig& delta = config_.layers[layer].delta;
  const std::vector<kernels::StateArray>& states = pass.kv.states[layer];
  const Branch branch = AttentionBranch(layer, pass);
  const MatrixView x = pass.x.RowRange(part.first_row, part.rows);
  const Activation in = branch.Input(x, pass.arena);
  const MatrixView qkv = pass.arena->AllocateMatrix(part.rows, delta.channels());
  const MatrixView z = pass.arena->AllocateMatrix(part.rows, delta.v_size());
  const MatrixView alpha = pass.arena->AllocateMatrix(part.rows, delta.v_heads);
  const MatrixView beta = pass.arena->AllocateMatrix(part.rows, delta.v_heads);
  std::vector<kernels::MatMulTarget> targets = {w.z.Into(z), w.alpha.Into(alpha),
                                                w.beta.Into(beta)};
  int64_t first = 0;
  for (const Linear& linear : w.qkv) {
    targets.push_back(linear.Into(Columns(qkv, first, linear.outputs())));
    first += linear.outputs();
  }
  pass.backend->MatMul(in, targets);
  pass.backend->CausalConv({.x = qkv,
                            .weight = w.conv,
                            .kernel = config_.layers[layer].conv_width,
                            .activation = kernels::ConvActivation::kSilu,
                            .state = states[1],
                            .spans = part.spans});
  const MatrixView values = Columns(qkv, 2 * delta.k_size(), delta.v_size());
  pass.backend->DeltaNet({.q = Columns(qkv, 0, delta.k_size()),
                          .k = Columns(qkv, delta.k_size(), delta.k_size()),
                          .v = values,
                          .a = alpha,
                          .b = beta,
                          .decay = w.decay,
                          .dt_bias = w.dt_bias,
                          .k_heads = delta.k_heads,
                          .v_heads = delta.v_heads,
                          .order = delta.order,
                          .scale = static_cast<float>(1 / std::sqrt(double{1} * delta.k_dim)),
                          .state = states[0],
                          .spans = part.spans,
                          .out = values});
  const Activation out = pass.backend->GatedNorm(values, z, w.norm, config_.norm_eps, pass.arena);
  branch.AddProduct(out, w.out, x, pass.arena);
}

void TransformerModel::ShortConv(int layer, const Pass& pass, const StatePart& part) const {
  const ShortConvWeights& w = weights_.layers[layer].short_conv;
  const int64_t hidden = config_.hidden_size;
  const Branch branch = AttentionBranch(layer, pass);
  const MatrixView x = pass.x.RowRange(part.first_row, part.rows);
  const Activation in = branch.Input(x, pass.arena);
  const MatrixView all = pass.arena->AllocateMatrix(part.rows, 3 * hidden);
  Multiply(pass.backend, in, {w.in.Into(all)});
  const MatrixView mixed = Columns(all, 2 * hidden, hidden);
  pass.backend->CausalConv({.x = mixed,
                            .weight = w.conv,
                            .kernel = config_.layers[layer].conv_width,
                            .in_gate = Columns(all, 0, hidden),
                            .out_gate = Columns(all, hidden, hidden),
                            .state = pass.kv.states[layer][0],
                            .spans = part.spans});
  branch.AddProduct(pass.backend->Quantize(mixed, pass.arena), w.out, x, pass.arena);
}

}  // namespace tidepool::engine
