#include "engine/model/transformer.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "engine/model/kv_values.h"
#include "engine/model/linear.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/ops.h"
#include "kernels/panel.h"
#include "moe/resident_experts.h"
#include "moe/traced_experts.h"

namespace tidepool::engine {

using kernels::Activation;
using kernels::Arena;
using kernels::KvSpan;
using kernels::MatrixView;

std::vector<KvSpec> KvSpecsOf(const ModelConfig& config, kernels::DType kv_dtype) {
  std::vector<KvSpec> specs;
  for (const LayerConfig& layer : config.layers) {
    specs.push_back({.kind = layer.sliding_window > 0 ? KvKind::kWindow : KvKind::kFull,
                     .window = layer.sliding_window,
                     .kv_heads = layer.kv_heads,
                     .k_dim = config.head_dim,
                     .v_dim = config.head_dim,
                     .dtype = kv_dtype});
  }
  return specs;
}

absl::StatusOr<std::unique_ptr<TransformerModel>> TransformerModel::Create(
    const ModelConfig& config, WeightStore* store, kernels::KernelBackend* backend,
    TransformerOptions options) {
  ASSIGN_OR_RETURN(TransformerWeights weights,
                   LoadTransformerWeights(config, store, options.progress,
                                          options.experts == nullptr ? ExpertLoading::kPacked
                                                                     : ExpertLoading::kShapesOnly));
  return std::unique_ptr<TransformerModel>(
      new TransformerModel(config, backend, std::move(options), std::move(weights)));
}

TransformerModel::TransformerModel(const ModelConfig& config, kernels::KernelBackend* backend,
                                   TransformerOptions options, TransformerWeights weights)
    : config_(config),
      backend_(backend),
      weights_(std::move(weights)),
      inv_freq_(config.rope.inv_freq),
      attention_scale_(static_cast<float>(1 / std::sqrt(static_cast<double>(config.head_dim)))),
      kv_specs_(KvSpecsOf(config, options.kv_dtype)) {
  for (size_t i = 0; i < weights_.rope_divisors.size(); ++i) {
    inv_freq_[i] /= weights_.rope_divisors[i];
  }
  std::vector<std::vector<kernels::FfnWeights>> experts;
  for (size_t i = 0; i < config_.layers.size(); ++i) {
    moe_layer_.push_back(static_cast<int>(experts.size()));
    if (config_.layers[i].ffn == FfnKind::kMoe) experts.push_back(weights_.layers[i].moe.experts);
  }
  if (experts.empty()) return;
  expert_source_ = std::move(options.experts);
  if (expert_source_ == nullptr) {
    expert_source_ = std::make_unique<moe::ResidentExperts>(std::move(experts));
  }
  if (options.trace != nullptr) {
    expert_source_ =
        std::make_unique<moe::TracedExperts>(std::move(expert_source_), std::move(options.trace));
  }
  expert_scheduler_ = std::make_unique<moe::ExpertScheduler>(backend_, expert_source_.get());
}

absl::StatusOr<StepOutput> TransformerModel::Forward(const Batch& batch, const KvView& kv,
                                                     Arena* workspace) {
  CheckBatch(batch, kv);
  workspace->Reset();
  expert_counts_ = ExpertCounts();
  ++forwards_;
  const Pass pass = Begin(batch, kv, workspace);
  Observe("embedding", pass.x);
  const size_t mark = workspace->used();
  for (int layer = 0; layer < static_cast<int>(config_.layers.size()); ++layer) {
    RETURN_IF_ERROR(Attention(layer, pass));
    workspace->ResetTo(mark);
    if (observer_) Observe(absl::StrCat("layer.", layer, ".attention"), pass.x);
    if (config_.layers[layer].ffn == FfnKind::kMoe) {
      RETURN_IF_ERROR(MoeFfn(layer, pass));
    } else {
      DenseFfn(layer, pass);
    }
    workspace->ResetTo(mark);
    ++layers_done_;
    if (observer_) Observe(absl::StrCat("layer.", layer), pass.x);
    if (layer_end_) layer_end_();
  }
  return Head(pass);
}

TransformerModel::Pass TransformerModel::Begin(const Batch& batch, const KvView& kv, Arena* arena) {
  const int64_t rows = batch.rows();
  const int64_t pairs = static_cast<int64_t>(inv_freq_.size());
  moe::Phase* phases = arena->Allocate<moe::Phase>(rows);
  int64_t* requests = arena->Allocate<int64_t>(rows);
  const Pass pass = {batch,
                     kv,
                     arena,
                     arena->AllocateMatrix(rows, config_.hidden_size),
                     arena->AllocateMatrix(rows, pairs),
                     arena->AllocateMatrix(rows, pairs),
                     arena->Allocate<KvSpan>(static_cast<int64_t>(batch.spans.size())),
                     absl::MakeConstSpan(phases, rows),
                     absl::MakeConstSpan(requests, rows)};
  const size_t mark = arena->used();
  int32_t* ids = arena->Allocate<int32_t>(rows);
  int64_t* positions = arena->Allocate<int64_t>(rows);
  int64_t at = 0;
  for (const RowSpan& span : batch.spans) {
    for (int64_t i = 0; i < span.rows(); ++i, ++at) {
      ids[at] = span.token_ids[i];
      phases[at] = span.phase;
      requests[at] = span.request;
      positions[at] = span.positions.empty() ? span.first_slot + i : span.positions[i];
    }
  }
  backend_->Embed(weights_.embedding, absl::MakeConstSpan(ids, rows), pass.x);
  backend_->RopeTable(absl::MakeConstSpan(positions, rows), inv_freq_, config_.rope.scale, pass.cos,
                      pass.sin);
  arena->ResetTo(mark);
  return pass;
}

// Computes the rows of a long prompt in parts, each after the KV of the earlier ones. The queries
// and outputs of all rows at once would need more memory than anything else in a pass.
absl::Status TransformerModel::Attention(int layer, const Pass& pass) {
  const absl::Span<const KvSpan> spans = SpansOf(layer, pass);
  if (pass.x.rows <= kMaxAttentionRows) return AttendRows(layer, pass, 0, spans);
  const size_t mark = pass.arena->used();
  std::vector<KvSpan> part;
  int64_t first_row = 0;
  int64_t rows = 0;  // number of rows in `part`
  const auto attend = [&] {
    RETURN_IF_ERROR(AttendRows(layer, pass, first_row, part));
    pass.arena->ResetTo(mark);
    first_row += rows;
    rows = 0;
    part.clear();
    return absl::OkStatus();
  };
  for (const KvSpan& span : spans) {
    for (int64_t begin = 0; begin < span.rows;) {
      int64_t count = std::min(span.rows - begin, kMaxAttentionRows - rows);
      if (span.mask != kernels::Mask::kCausal && count < span.rows) count = 0;
      if (count > 0) {
        KvSpan& next = part.emplace_back(span);
        next.first_row = rows;
        next.rows = count;
        next.first_slot += begin;
        begin += count;
        rows += count;
      }
      if (begin < span.rows) RETURN_IF_ERROR(attend());
    }
  }
  return attend();
}

absl::Status TransformerModel::AttendRows(int layer, const Pass& pass, int64_t first_row,
                                          absl::Span<const KvSpan> spans) {
  const LayerWeights& w = weights_.layers[layer];
  const kernels::KvLayer& kv = pass.kv.layers[layer];
  const int head_dim = config_.head_dim;
  const auto style = config_.rope.style;
  const int64_t rows = spans.back().first_row + spans.back().rows;
  const MatrixView x = pass.x.RowRange(first_row, rows);
  const MatrixView cos = pass.cos.RowRange(first_row, rows);
  const MatrixView sin = pass.sin.RowRange(first_row, rows);

  const Activation a = backend_->Norm(x, w.attention_norm, config_.norm_eps, pass.arena);
  const MatrixView q = pass.arena->AllocateMatrix(rows, w.q.outputs());
  const MatrixView k = pass.arena->AllocateMatrix(rows, w.k.outputs());
  const MatrixView v = pass.arena->AllocateMatrix(rows, w.v.outputs());
  Multiply(backend_, a, {w.q.Into(q), w.k.Into(k), w.v.Into(v)});
  if (config_.qk_norm) {
    backend_->HeadNorm(q, w.q_norm, config_.norm_eps);
    backend_->HeadNorm(k, w.k_norm, config_.norm_eps);
  }
  backend_->Rope(q, head_dim, style, cos, sin);
  backend_->Rope(k, head_dim, style, cos, sin);
  // Check before storing, because stored KV may be shared.
  RETURN_IF_ERROR(CheckKvValues(layer, kv.dtype, k, v));
  backend_->StoreKv(k, v, kv, spans);
  const Activation attended =
      backend_->Attend({q, config_.layers[layer].heads, attention_scale_, kv, spans}, pass.arena);
  Multiply(backend_, attended, {w.attention_output.AddTo(x)});
  return absl::OkStatus();
}

void TransformerModel::DenseFfn(int layer, const Pass& pass) {
  const LayerWeights& w = weights_.layers[layer];
  const Activation f = backend_->Norm(pass.x, w.ffn_norm, config_.norm_eps, pass.arena);
  const Activation inner = backend_->MatMulSwiGlu(f, w.ffn_gate, w.ffn_up, pass.arena);
  Multiply(backend_, inner, {w.ffn_down.AddTo(pass.x)});
}

TransformerModel::Gated TransformerModel::Gate(int layer, const Pass& pass) {
  const LayerWeights& w = weights_.layers[layer];
  const kernels::GateSpec gate = {config_.moe.experts, config_.moe.experts_used,
                                  config_.moe.normalize_weights};
  const int64_t rows = pass.x.rows;
  const Activation x = backend_->Norm(pass.x, w.ffn_norm, config_.norm_eps, pass.arena);
  const MatrixView logits = pass.arena->AllocateMatrix(rows, gate.experts);
  int32_t* ids = pass.arena->Allocate<int32_t>(rows * gate.top_k);
  float* weights = pass.arena->Allocate<float>(rows * gate.top_k);
  Multiply(backend_, x, {w.moe.router.Into(logits)});
  backend_->Gate(logits, gate, ids, weights);
  return {x, ids, weights};
}

absl::Status TransformerModel::MoeFfn(int layer, const Pass& pass) {
  const LayerWeights& w = weights_.layers[layer];
  const Gated gated = Gate(layer, pass);
  const auto foretell = [&] { PrefetchHint(layer + 1, pass); };
  const moe::Routing routing = {.moe_layer = moe_layer_[layer],
                                .top_k = config_.moe.experts_used,
                                .ids = gated.ids,
                                .weights = gated.weights,
                                .step = forwards_ - 1,
                                .phases = pass.phases,
                                .requests = pass.requests,
                                .asked = foretell};
  const absl::Status computed = expert_scheduler_->Run(routing, gated.x, pass.x, pass.arena);
  const moe::ExpertLookups lookups = expert_scheduler_->TakeLookups();
  expert_counts_.hits += lookups.hits;
  expert_counts_.misses += lookups.misses;
  RETURN_IF_ERROR(computed);
  if (config_.moe.shared_width > 0) SharedExpert(w.moe, gated.x, pass);
  return absl::OkStatus();
}

// Predicts a layer's experts: applies its gate to the residual stream one layer earlier, which
// usually differs little. Passes the prediction to the source as a hint.
void TransformerModel::PrefetchHint(int layer, const Pass& pass) {
  if (!expert_source_->WantsHints() || pass.x.rows > kMaxHintRows) return;
  if (layer >= static_cast<int>(config_.layers.size())) return;
  if (config_.layers[layer].ffn != FfnKind::kMoe) return;
  const int64_t rows = pass.x.rows;
  const int top_k = config_.moe.experts_used;
  const size_t mark = pass.arena->used();
  const int32_t* ids = Gate(layer, pass).ids;
  // The first choices of all rows, then the second choices, and so on.
  std::vector<int32_t> expected;
  for (int choice = 0; choice < top_k; ++choice) {
    for (int64_t row = 0; row < rows; ++row) expected.push_back(ids[row * top_k + choice]);
  }
  pass.arena->ResetTo(mark);
  expert_source_->PrefetchHint(moe_layer_[layer], expected);
}

void TransformerModel::SharedExpert(const MoeWeights& weights, const Activation& x,
                                    const Pass& pass) {
  const MatrixView gate = pass.arena->AllocateMatrix(pass.x.rows, 1);
  const MatrixView out = pass.arena->AllocateMatrix(pass.x.rows, config_.hidden_size);
  Multiply(backend_, x, {weights.shared_gate.Into(gate)});
  const Activation inner =
      backend_->MatMulSwiGlu(x, weights.shared.gate, weights.shared.up, pass.arena);
  Multiply(backend_, inner, {Linear{weights.shared.down, {}}.Into(out)});
  backend_->AddGated(out, absl::MakeConstSpan(gate.data, gate.rows), pass.x);
}

// Computes the head only for the requested rows of logits or argmax.
StepOutput TransformerModel::Head(const Pass& pass) {
  const int64_t logits = pass.batch.logit_rows();
  const int64_t wanted = logits + pass.batch.argmax_rows();
  const MatrixView rows = pass.arena->AllocateMatrix(wanted, config_.hidden_size);
  int64_t next[] = {0, logits};  // next row of logits, and next argmax row
  int64_t first_row = 0;
  kernels::HeadTarget target;
  for (const RowSpan& span : pass.batch.spans) {
    for (const int32_t row : span.logit_rows) {
      std::copy_n(pass.x.Row(first_row + row), rows.cols, rows.Row(next[span.argmax_vocab > 0]++));
    }
    target.argmax_vocab = std::max<int64_t>(target.argmax_vocab, span.argmax_vocab);
    first_row += span.rows();
  }
  const Activation hidden = backend_->Norm(rows, weights_.final_norm, config_.norm_eps, pass.arena);
  Observe("norm", hidden.values);
  if (wanted == 0) return {};
  target.weight = weights_.head.weight;
  target.bias = weights_.head.bias;
  target.out = pass.arena->AllocateMatrix(logits, config_.vocab_size);
  target.best = absl::MakeSpan(pass.arena->Allocate<kernels::ArgMax>(wanted - logits),
                               static_cast<size_t>(wanted - logits));
  if (HeadHasTwoTerms()) {
    target.terms = 2;
    backend_->MatMulHead(TwoTerms(hidden, pass.arena), target, pass.arena);
  } else {
    backend_->MatMulHead(hidden, target, pass.arena);
  }
  return {target.out, target.best};
}

bool TransformerModel::HeadHasTwoTerms() const {
  return kernels::IsQuantised(weights_.head.weight.dtype) &&
         kernels::HasInt8Form(backend_->precision(), config_.hidden_size);
}

// No later layer averages out rounding errors of the head, so int8 rows would cost more precision
// here than in any other product (a third of the KL divergence from exact results). So each row is
// split into two int8 rows: its rounded value and the remainder. Both use a weight while it is in
// registers. Decoding is limited by reading weights, so this costs almost nothing there.
Activation TransformerModel::TwoTerms(const Activation& hidden, Arena* arena) {
  const int64_t rows = hidden.values.rows;
  const int64_t cols = hidden.values.cols;
  const int64_t blocks = cols / kernels::kQuantBlock;
  const MatrixView terms = arena->AllocateMatrix(2 * rows, cols);
  for (int64_t i = 0; i < rows; ++i) {
    const float* x = hidden.values.Row(i);
    float* left = terms.Row(rows + i);
    std::copy_n(x, cols, terms.Row(i));
    for (int64_t k = 0; k < cols; ++k) {
      const float scale = hidden.scales[i * blocks + k / kernels::kQuantBlock];
      left[k] = x[k] - scale * static_cast<float>(hidden.quants[i * cols + k]);
    }
  }
  return backend_->Quantize(terms, arena);
}

void TransformerModel::CheckBatch(const Batch& batch, const KvView& kv) const {
  CHECK(kv.layers.size() == config_.layers.size() &&
        kv.group_of_layer.size() == config_.layers.size())
      << "the KV view has " << kv.layers.size() << " layers, the model " << config_.layers.size();
  CHECK(!batch.spans.empty());
  int32_t argmax_vocab = 0;
  for (const RowSpan& span : batch.spans) {
    CHECK(span.argmax_vocab == 0 || argmax_vocab == 0 || span.argmax_vocab == argmax_vocab)
        << "the best of " << argmax_vocab << " and of " << span.argmax_vocab;
    argmax_vocab = std::max(argmax_vocab, span.argmax_vocab);
    CHECK(span.rows() > 0 && span.first_slot >= 0) << "a span without rows";
    CHECK(span.mask == kernels::Mask::kCausal || span.rows() <= kMaxAttentionRows)
        << "a span of " << span.rows() << " rows that see each other";
    CHECK(span.positions.empty() || static_cast<int64_t>(span.positions.size()) == span.rows());
    for (const int32_t id : span.token_ids) {
      CHECK(id >= 0 && id < config_.vocab_size) << "token id " << id;
    }
    int32_t last = -1;
    for (const int32_t row : span.logit_rows) {
      CHECK(row > last && row < span.rows()) << "logit row " << row << " of " << span.rows();
      last = row;
    }
  }
}

absl::Span<const KvSpan> TransformerModel::SpansOf(int layer, const Pass& pass) const {
  const size_t group = pass.kv.group_of_layer[layer];
  int64_t first_row = 0;
  KvSpan* next = pass.spans;
  for (const RowSpan& span : pass.batch.spans) {
    CHECK_LT(group, span.blocks.size());
    *next++ = {.first_row = first_row,
               .rows = span.rows(),
               .first_slot = span.first_slot,
               .blocks = span.blocks[group],
               .mask = span.mask,
               .window = config_.layers[layer].sliding_window};
    first_row += span.rows();
  }
  return absl::MakeConstSpan(pass.spans, pass.batch.spans.size());
}

void TransformerModel::Observe(absl::string_view name, kernels::ConstMatrixView rows) const {
  if (observer_) observer_(name, rows);
}

}  // namespace tidepool::engine
