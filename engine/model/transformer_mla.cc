// TransformerModel: multi-head latent attention, in the absorbed form for every row. A second form
// for prompts would give other bits.
#include <algorithm>

#include "engine/model/kv_values.h"
#include "engine/model/linear.h"
#include "engine/model/transformer.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {

using kernels::Activation;
using kernels::Arena;
using kernels::KvSpan;
using kernels::MatrixView;

namespace {

// Copies `cols` elements of each head, from heads of `from_dim` elements to heads of `to_dim`.
struct HeadCopy {
  int heads = 0;
  int cols = 0;
  int from_dim = 0;
  int from_first = 0;
  int to_dim = 0;
  int to_first = 0;
};
void CopyHeads(const HeadCopy& copy, MatrixView from, MatrixView to) {
  for (int64_t i = 0; i < from.rows; ++i) {
    const float* source = from.Row(i) + copy.from_first;
    float* target = to.Row(i) + copy.to_first;
    for (int h = 0; h < copy.heads; ++h) {
      std::copy_n(source + int64_t{h} * copy.from_dim, copy.cols,
                  target + int64_t{h} * copy.to_dim);
    }
  }
}

// Returns the columns of x from `first` on.
MatrixView ColumnsFrom(MatrixView x, int64_t first) {
  return {x.data + first, x.rows, x.cols - first, x.stride};
}

}  // namespace

// The queries in the space of the stored keys: [rows, heads * (kv_rank + rope_dim)].
MatrixView TransformerModel::LatentQuery(int layer, const Activation& x, const Rotation& rotation,
                                         Arena* arena) {
  const LayerWeights& w = weights_.layers[layer];
  const LayerConfig& config = config_.layers[layer];
  const MlaConfig& mla = config.mla;
  const int64_t rows = x.values.rows;
  const int dim = mla.nope_dim + mla.rope_dim;
  const MatrixView q = arena->AllocateMatrix(rows, w.q.outputs());
  if (mla.q_rank > 0) {
    const MatrixView compressed = arena->AllocateMatrix(rows, mla.q_rank);
    Multiply(backend_, x, {w.mla.q_a.Into(compressed)});
    Multiply(backend_, backend_->Norm(compressed, w.mla.q_a_norm, config_.norm_eps, arena),
             {w.q.Into(q)});
  } else {
    Multiply(backend_, x, {w.q.Into(q)});
  }
  if (config.rope != kNoRope) {
    // A view that begins at the rotated elements of the first head.
    const MatrixView rotated = {q.data + mla.nope_dim, q.rows, q.cols, q.stride};
    backend_->Rope(rotated, dim, config_.ropes[config.rope].style, rotation.cos, rotation.sin);
  }
  const MatrixView nope = arena->AllocateMatrix(rows, int64_t{config.heads} * mla.nope_dim);
  CopyHeads({.heads = config.heads, .cols = mla.nope_dim, .from_dim = dim, .to_dim = mla.nope_dim},
            q, nope);
  const MatrixView latent = arena->AllocateMatrix(rows, int64_t{config.heads} * mla.kv_rank);
  backend_->MatMulHeads(backend_->Quantize(nope, arena), w.mla.k_b, latent);
  const MatrixView query = arena->AllocateMatrix(rows, int64_t{config.heads} * config.head_dim);
  CopyHeads({.heads = config.heads,
             .cols = mla.kv_rank,
             .from_dim = mla.kv_rank,
             .to_dim = config.head_dim},
            latent, query);
  CopyHeads({.heads = config.heads,
             .cols = mla.rope_dim,
             .from_dim = dim,
             .from_first = mla.nope_dim,
             .to_dim = config.head_dim,
             .to_first = mla.kv_rank},
            q, query);
  return query;
}

absl::Status TransformerModel::AttendLatentRows(int layer, const Pass& pass, int64_t first_row,
                                                absl::Span<const KvSpan> spans) {
  const LayerWeights& w = weights_.layers[layer];
  const LayerConfig& config = config_.layers[layer];
  const MlaConfig& mla = config.mla;
  const kernels::KvLayer& kv = pass.kv.layers[layer];
  const Branch branch = AttentionBranch(layer);
  const int64_t rows = spans.back().first_row + spans.back().rows;
  const MatrixView x = pass.x.RowRange(first_row, rows);
  const Rotation& table = pass.rotations[std::max(config.rope, 0)];
  const Rotation rotation = {table.cos.RowRange(first_row, rows),
                             table.sin.RowRange(first_row, rows)};

  const Activation a = branch.Input(x, pass.arena);
  const MatrixView keys = pass.arena->AllocateMatrix(rows, config.head_dim);
  Multiply(backend_, a, {w.mla.kv_a.Into(keys)});
  backend_->HeadNorm({keys.data, rows, mla.kv_rank, keys.stride}, w.mla.kv_a_norm,
                     config_.norm_eps);
  if (config.rope != kNoRope) {
    backend_->Rope(ColumnsFrom(keys, mla.kv_rank), mla.rope_dim, config_.ropes[config.rope].style,
                   rotation.cos, rotation.sin);
  }
  const MatrixView no_values(nullptr, rows, 0);
  RETURN_IF_ERROR(CheckKvValues(layer, kv.dtype, keys, no_values));
  backend_->StoreKv(keys, no_values, kv, spans);
  const MatrixView q = LatentQuery(layer, a, rotation, pass.arena);
  const Activation attended = backend_->Attend({.q = q,
                                                .heads = config.heads,
                                                .scale = config.attention_scale,
                                                .layer = kv,
                                                .spans = spans,
                                                .soft_cap = config.attention_softcap,
                                                .sinks = w.sinks},
                                               pass.arena);
  const MatrixView out = pass.arena->AllocateMatrix(rows, int64_t{config.heads} * mla.value_dim);
  backend_->MatMulHeads(attended, w.mla.v_b, out);
  branch.AddProduct(backend_->Quantize(out, pass.arena), w.attention_output, x, pass.arena);
  return absl::OkStatus();
}

}  // namespace tidepool::engine
