#include "engine/model/transformer.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "engine/model/hidden_values.h"
#include "engine/model/linear.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "moe/resident_experts.h"
#include "moe/traced_experts.h"

namespace tidepool::engine {

using kernels::Activation;
using kernels::Arena;
using kernels::KvSpan;
using kernels::MatrixView;

namespace {

std::vector<double> Divided(std::vector<double> frequencies, absl::Span<const float> divisors) {
  for (size_t i = 0; i < divisors.size(); ++i) frequencies[i] /= divisors[i];
  return frequencies;
}

// The spec of a layer with a recurrent state.
KvSpec StateSpecOf(const LayerConfig& layer, int64_t hidden) {
  const auto conv = [&](int64_t channels) -> StateSpec {
    return {kernels::ConvUnits(channels), kernels::ConvUnitBytes(layer.conv_width)};
  };
  if (layer.mixer == Mixer::kShortConv) return {.kind = KvKind::kState, .state = {conv(hidden)}};
  const DeltaNetConfig& delta = layer.delta;
  const StateSpec matrices = {delta.v_heads, kernels::DeltaUnitBytes(delta.k_dim, delta.v_dim)};
  return {.kind = KvKind::kState, .state = {matrices, conv(delta.channels())}};
}

}  // namespace

std::vector<KvSpec> KvSpecsOf(const ModelConfig& config, kernels::DType kv_dtype) {
  std::vector<KvSpec> specs;
  for (const LayerConfig& layer : config.layers) {
    if (!layer.has_attention()) {
      specs.push_back(StateSpecOf(layer, config.hidden_size));
      continue;
    }
    specs.push_back({.kind = layer.sliding_window > 0 ? KvKind::kWindow : KvKind::kFull,
                     .window = layer.sliding_window,
                     .kv_heads = layer.kv_heads,
                     .k_dim = layer.head_dim,
                     .v_dim = layer.value_dim(),
                     .dtype = kv_dtype,
                     .values_in_keys = layer.has_mla()});
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
      on_host_(backend->memory()->on_host()),
      weights_(std::move(weights)),
      kv_specs_(KvSpecsOf(config, options.kv_dtype)) {
  for (size_t rope = 0; rope < config_.ropes.size(); ++rope) {
    const std::vector<double>& frequencies = config_.ropes[rope].inv_freq;
    inv_freq_.push_back(Divided(frequencies, weights_.rope_divisors[rope]));
    long_inv_freq_.push_back(Divided(frequencies, weights_.long_rope_divisors[rope]));
  }
  has_state_ = std::any_of(config_.layers.begin(), config_.layers.end(),
                           [](const LayerConfig& layer) { return !layer.has_attention(); });
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
  expert_scheduler_ =
      std::make_unique<moe::ExpertScheduler>(backend_, expert_source_.get(), options.host_backend);
}

absl::StatusOr<StepOutput> TransformerModel::Forward(const Batch& batch, const KvView& kv,
                                                     Arena* workspace) {
  CheckBatch(batch, kv);
  workspace->Reset();
  expert_counts_ = ExpertCounts();
  ++forwards_;
  return Walk({.batch = batch,
               .kv = kv,
               .backend = backend_,
               .arena = workspace,
               .rows = &rows_,
               .live = this});
}

absl::StatusOr<StepOutput> TransformerModel::Walk(Pass pass) const {
  Begin(&pass);
  RETURN_IF_ERROR(EndLayer(kEmbeddingLayer, pass));
  const size_t mark = pass.arena->used();
  for (int layer = 0; layer < static_cast<int>(config_.layers.size()); ++layer) {
    RETURN_IF_ERROR(Mix(layer, pass));
    pass.arena->ResetTo(mark);
    if (observer_) {
      RETURN_IF_ERROR(Observe(absl::StrCat("layer.", layer, ".attention"), pass, pass.x));
    }
    if (config_.layers[layer].ffn == FfnKind::kMoe) {
      RETURN_IF_ERROR(MoeFfn(layer, pass));
    } else {
      DenseFfn(layer, pass);
    }
    pass.arena->ResetTo(mark);
    RETURN_IF_ERROR(EndLayer(layer, pass));
  }
  return Head(pass);
}

void TransformerModel::Begin(Pass* pass) const {
  PassRows& rows = *pass->rows;
  const int64_t count = pass->batch.rows();
  rows.ids.resize(count);
  rows.positions.resize(count);
  rows.phases.resize(count);
  rows.requests.resize(count);
  rows.spans.resize(pass->batch.spans.size());
  int64_t at = 0;
  for (const RowSpan& span : pass->batch.spans) {
    for (int64_t i = 0; i < span.rows(); ++i, ++at) {
      rows.ids[at] = span.token_ids[i];
      rows.phases[at] = span.phase;
      rows.requests[at] = span.request;
      rows.positions[at] = span.positions.empty() ? span.first_slot + i : span.positions[i];
    }
  }
  // The output of the embedding and of each layer is checked, and each layer's keys and values.
  const auto checked = static_cast<int64_t>(1 + 3 * config_.layers.size());
  rows.checks.Begin(pass->backend, {.rows = count, .waiting = on_host_ ? 1 : checked}, check_time(),
                    pass->arena);
  pass->x = pass->arena->AllocateMatrix(count, config_.hidden_size);
  pass->backend->Embed(weights_.embedding, rows.ids, pass->x);
  if (config_.embedding_scale != 1) pass->backend->Scale(pass->x, config_.embedding_scale);
  rows.rotations.clear();
  for (const std::vector<double>& frequencies : inv_freq_) {
    const auto pairs = static_cast<int64_t>(frequencies.size());
    rows.rotations.push_back(
        {pass->arena->AllocateMatrix(count, pairs), pass->arena->AllocateMatrix(count, pairs)});
  }
  FillRotations(*pass);
  rows.state_parts.clear();
  if (has_state_) CutStateParts(pass->batch, &rows.state_parts);
}

void TransformerModel::FillRotations(const Pass& pass) const {
  const absl::Span<const int64_t> positions = pass.rows->positions;
  for (size_t rope = 0; rope < inv_freq_.size(); ++rope) {
    const auto& [cos, sin] = pass.rows->rotations[rope];
    const RopeConfig& config = config_.ropes[rope];
    if (config.short_slots == 0) {
      pass.backend->RopeTable(positions, inv_freq_[rope], config.scale, cos, sin);
      continue;
    }
    int64_t first = 0;
    for (const RowSpan& span : pass.batch.spans) {
      const int64_t rows = span.rows();
      const bool is_short = span.slot_limit > 0 && span.slot_limit <= config.short_slots;
      pass.backend->RopeTable(positions.subspan(first, rows),
                              is_short ? inv_freq_[rope] : long_inv_freq_[rope], config.scale,
                              cos.RowRange(first, rows), sin.RowRange(first, rows));
      first += rows;
    }
  }
}

// Must be called after the embedding (kEmbeddingLayer) and after each layer. Checks the layer's
// output. The observer is called before the check, so it also gets an output that fails the check.
absl::Status TransformerModel::EndLayer(int layer, const Pass& pass) const {
  if (pass.dry()) return absl::OkStatus();
  if (observer_) {
    RETURN_IF_ERROR(Observe(layer == kEmbeddingLayer ? "embedding" : absl::StrCat("layer.", layer),
                            pass, pass.x));
  }
  RETURN_IF_ERROR(pass.rows->checks.Hidden(layer, pass.x));
  if (layer == kEmbeddingLayer) return absl::OkStatus();
  ++pass.live->layers_done_;
  if (layer_end_) layer_end_();
  return absl::OkStatus();
}

Branch TransformerModel::AttentionBranch(int layer, const Pass& pass) const {
  const LayerWeights& w = weights_.layers[layer];
  return {pass.backend, w.attention_norm, w.attention_post_norm, config_.norm_eps,
          config_.residual_scale};
}

Branch TransformerModel::FfnBranch(int layer, const Pass& pass) const {
  const LayerWeights& w = weights_.layers[layer];
  return {pass.backend, w.ffn_norm, w.ffn_post_norm, config_.norm_eps, config_.residual_scale};
}

// Computes the rows of a long prompt in parts. Each part uses the KV of the earlier parts. The
// queries and outputs of all rows together would need more memory than everything else in a pass.
absl::Status TransformerModel::Attention(int layer, const Pass& pass) const {
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

// Requires: the spans cover rows [0, n), which are rows [first_row, first_row + n) of the batch.
absl::Status TransformerModel::AttendRows(int layer, const Pass& pass, int64_t first_row,
                                          absl::Span<const KvSpan> spans) const {
  const LayerWeights& w = weights_.layers[layer];
  const LayerConfig& config = config_.layers[layer];
  const kernels::KvLayer& kv = pass.kv.layers[layer];
  const Branch branch = AttentionBranch(layer, pass);
  const int64_t rows = spans.back().first_row + spans.back().rows;
  const MatrixView x = pass.x.RowRange(first_row, rows);
  Rotation rotation;
  if (config.rope != kNoRope) {
    const Rotation& table = pass.rows->rotations[config.rope];
    rotation = {table.cos.RowRange(first_row, rows), table.sin.RowRange(first_row, rows)};
  }

  const Activation a = branch.Input(x, pass.arena);
  const Qkv qkv = config.has_mla() ? ProjectLatent(layer, pass, a, rotation)
                                   : Project(layer, pass, a, rotation);
  if (!pass.dry()) RETURN_IF_ERROR(pass.rows->checks.Kv(layer, kv.dtype, qkv.k, qkv.v));
  pass.backend->StoreKv(qkv.k, qkv.v, kv, spans);
  Activation attended = pass.backend->Attend({.q = qkv.q,
                                              .heads = config.heads,
                                              .scale = config.attention_scale,
                                              .layer = kv,
                                              .spans = spans,
                                              .soft_cap = config.attention_softcap,
                                              .sinks = w.sinks,
                                              .gate = qkv.gate},
                                             pass.arena);
  if (config.has_mla()) attended = LatentValues(layer, pass, attended);
  branch.AddProduct(attended, w.attention_output, x, pass.arena);
  return absl::OkStatus();
}

TransformerModel::Qkv TransformerModel::Project(int layer, const Pass& pass, const Activation& x,
                                                const Rotation& rotation) const {
  const LayerWeights& w = weights_.layers[layer];
  const LayerConfig& config = config_.layers[layer];
  const int64_t rows = x.values.rows;
  Qkv qkv = {pass.arena->AllocateMatrix(rows, w.q.outputs()),
             pass.arena->AllocateMatrix(rows, w.k.outputs()),
             pass.arena->AllocateMatrix(rows, w.v.outputs()),
             {}};
  if (config.gated) {
    qkv.gate = pass.arena->AllocateMatrix(rows, w.gate.outputs());
    Multiply(pass.backend, x,
             {w.q.Into(qkv.q), w.k.Into(qkv.k), w.v.Into(qkv.v), w.gate.Into(qkv.gate)});
  } else {
    Multiply(pass.backend, x, {w.q.Into(qkv.q), w.k.Into(qkv.k), w.v.Into(qkv.v)});
  }
  if (config.qk_norm != QkNorm::kHeadAfterRope) NormQk(w, pass, qkv);
  if (config.rope != kNoRope) {
    const auto style = config_.ropes[config.rope].style;
    pass.backend->Rope(qkv.q, config.head_dim, style, rotation.cos, rotation.sin);
    pass.backend->Rope(qkv.k, config.head_dim, style, rotation.cos, rotation.sin);
  }
  if (config.qk_norm == QkNorm::kHeadAfterRope) NormQk(w, pass, qkv);
  return qkv;
}

// The weights are as wide as a head, or as all heads of a row.
void TransformerModel::NormQk(const LayerWeights& weights, const Pass& pass, const Qkv& qkv) const {
  if (weights.q_norm.empty()) return;
  pass.backend->HeadNorm(qkv.q, weights.q_norm, config_.norm_eps);
  pass.backend->HeadNorm(qkv.k, weights.k_norm, config_.norm_eps);
}

void TransformerModel::DenseFfn(int layer, const Pass& pass) const {
  const kernels::FfnWeights& ffn = weights_.layers[layer].ffn;
  const Branch branch = FfnBranch(layer, pass);
  const Activation f = branch.Input(pass.x, pass.arena);
  const Activation inner = pass.backend->MatMulGlu(f, ffn, pass.arena);
  branch.AddProduct(inner, {ffn.down, ffn.down_bias}, pass.x, pass.arena);
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
    CHECK(span.mask == kernels::Mask::kCausal || (span.rows() <= kMaxAttentionRows && !has_state_))
        << "a span of " << span.rows() << " rows that see each other";
    CHECK(!span.state_out.empty() == has_state_ &&
          span.state_in.empty() == (!has_state_ || span.first_slot == 0))
        << "a span at slot " << span.first_slot
        << " without its state, or with one that the model does not have";
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
  KvSpan* next = pass.rows->spans.data();
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
  return pass.rows->spans;
}

absl::Status TransformerModel::Observe(absl::string_view name, const Pass& pass,
                                       kernels::ConstMatrixView rows) const {
  if (!observer_ || pass.dry()) return absl::OkStatus();
  if (!on_host_ && rows.rows > 0) {
    std::vector<float>& copy = pass.rows->copies.observed;
    copy.resize(rows.rows * rows.cols);
    CHECK_EQ(rows.stride, rows.cols);
    RETURN_IF_ERROR(pass.backend->CopyOut(
        reinterpret_cast<const std::byte*>(rows.data),
        {reinterpret_cast<std::byte*>(copy.data()), copy.size() * sizeof(float)}));
    rows.data = copy.data();
  }
  observer_(name, rows);
  return absl::OkStatus();
}

}  // namespace tidepool::engine
