// TransformerModel: the projections of multi-head latent attention. Every row uses the absorbed
// form. If prompts used another form, their bits would differ.
#include "engine/model/linear.h"
#include "engine/model/transformer.h"

namespace tidepool::engine {

using kernels::Activation;
using kernels::MatrixView;

namespace {

// Returns the columns of x from `first` on.
MatrixView ColumnsFrom(MatrixView x, int64_t first) {
  return {x.data + first, x.rows, x.cols - first, x.stride};
}

}  // namespace

// Returns the queries in the space of the stored keys: [rows, heads * (kv_rank + rope_dim)].
MatrixView TransformerModel::LatentQuery(int layer, const Pass& pass, const Activation& x,
                                         const Rotation& rotation) const {
  const LayerWeights& w = weights_.layers[layer];
  const LayerConfig& config = config_.layers[layer];
  const MlaConfig& mla = config.mla;
  kernels::Arena* const arena = pass.arena;
  const int64_t rows = x.values.rows;
  const int dim = mla.nope_dim + mla.rope_dim;
  const MatrixView q = arena->AllocateMatrix(rows, w.q.outputs());
  if (mla.q_rank > 0) {
    const MatrixView compressed = arena->AllocateMatrix(rows, mla.q_rank);
    Multiply(pass.backend, x, {w.mla.q_a.Into(compressed)});
    Multiply(pass.backend, pass.backend->Norm(compressed, w.mla.q_a_norm, mla.norm_eps, arena),
             {w.q.Into(q)});
  } else {
    Multiply(pass.backend, x, {w.q.Into(q)});
  }
  if (config.rope != kNoRope) {
    // This view begins at the rotated elements of the first head.
    const MatrixView rotated = {q.data + mla.nope_dim, q.rows, q.cols, q.stride};
    pass.backend->Rope(rotated, dim, config_.ropes[config.rope].style, rotation.cos, rotation.sin);
  }
  const MatrixView nope = arena->AllocateMatrix(rows, int64_t{config.heads} * mla.nope_dim);
  pass.backend->CopyHeads(
      {.heads = config.heads, .cols = mla.nope_dim, .from_dim = dim, .to_dim = mla.nope_dim}, q,
      nope);
  const MatrixView latent = arena->AllocateMatrix(rows, int64_t{config.heads} * mla.kv_rank);
  pass.backend->MatMulHeads(pass.backend->Quantize(nope, arena), w.mla.k_b, latent);
  const MatrixView query = arena->AllocateMatrix(rows, int64_t{config.heads} * config.head_dim);
  pass.backend->CopyHeads({.heads = config.heads,
                           .cols = mla.kv_rank,
                           .from_dim = mla.kv_rank,
                           .to_dim = config.head_dim},
                          latent, query);
  pass.backend->CopyHeads({.heads = config.heads,
                           .cols = mla.rope_dim,
                           .from_dim = dim,
                           .from_first = mla.nope_dim,
                           .to_dim = config.head_dim,
                           .to_first = mla.kv_rank},
                          q, query);
  return query;
}

TransformerModel::Qkv TransformerModel::ProjectLatent(int layer, const Pass& pass,
                                                      const Activation& x,
                                                      const Rotation& rotation) const {
  const LayerWeights& w = weights_.layers[layer];
  const LayerConfig& config = config_.layers[layer];
  const MlaConfig& mla = config.mla;
  const int64_t rows = x.values.rows;
  const MatrixView keys = pass.arena->AllocateMatrix(rows, config.head_dim);
  Multiply(pass.backend, x, {w.mla.kv_a.Into(keys)});
  pass.backend->HeadNorm({keys.data, rows, mla.kv_rank, keys.stride}, w.mla.kv_a_norm,
                         mla.norm_eps);
  if (config.rope != kNoRope) {
    pass.backend->Rope(ColumnsFrom(keys, mla.kv_rank), mla.rope_dim,
                       config_.ropes[config.rope].style, rotation.cos, rotation.sin);
  }
  return {LatentQuery(layer, pass, x, rotation), keys, MatrixView(nullptr, rows, 0), {}};
}

// Returns the results of attention in the space of the values.
Activation TransformerModel::LatentValues(int layer, const Pass& pass,
                                          const Activation& attended) const {
  const LayerConfig& config = config_.layers[layer];
  const MatrixView out = pass.arena->AllocateMatrix(attended.values.rows,
                                                    int64_t{config.heads} * config.mla.value_dim);
  pass.backend->MatMulHeads(attended, weights_.layers[layer].mla.v_b, out);
  return pass.backend->Quantize(out, pass.arena);
}

}  // namespace tidepool::engine
