#include "tools/synthetic/tensor_list.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/requantize.h"
#include "kernels/base/status_macros.h"
#include "tools/synthetic/slow_head.h"

namespace tidepool::tools {
namespace {

using engine::GgmlType;
using Dims = std::array<int64_t, 4>;

// Deviation of the logits.
constexpr float kLogitDeviation = 2.0f;
constexpr float kBiasDeviation = 0.1f;
constexpr float kSinkDeviation = 1.0f;
// Used with a routing target. kGrowth: the variance that the experts of a layer add to the stream,
// relative to the stream's variance. The next three describe the reserved channels: the value of
// the constant channel, the deviation of the slow channels, and their number.
constexpr double kGrowth = 0.06;
constexpr float kConstant = 0.5f;
constexpr double kSlowDeviation = 0.25;
constexpr int64_t kSlowChannels = 64;
constexpr int64_t kMinHidden = 128;
// Variance of silu(a) * b for normal a and b.
constexpr double kGatedVariance = 0.3556;

// The layout of the residual stream's channels, and how routers read them. Immutable.
struct RoutedStream {
  int64_t hidden = 0;
  int64_t slow = 0;  // number of slow channels, before the last channel, which is constant
  int64_t tail_columns = 0;
  SlowHead head;
  RoutingMix mix;

  int64_t ordinary() const { return hidden - slow - 1; }
  bool IsReserved(int64_t channel) const { return channel >= ordinary(); }
  // The stream's variance at the input of a layer's router.
  double Variance(int64_t layer) const { return std::pow(1 + kGrowth, layer); }
};

class TensorList {
 public:
  TensorList(const Shape& shape, const TensorListOptions& options,
             std::shared_ptr<const RoutedStream> stream)
      : shape_(shape),
        layers_(shape.layers),
        type_(options.type),
        stream_(std::move(stream)),
        into_stream_(1 / std::sqrt(2 * static_cast<float>(layers_))) {
    AddEnds();
    for (int64_t layer = 0; layer < layers_; ++layer) {
      const std::string prefix = absl::StrCat("blk.", layer, ".");
      AddNorm(prefix + "attn_norm.weight", shape_.hidden);
      if (shape_.extras.delta.HasAttention(layer)) {
        AddAttention(layer, prefix);
      } else {
        AddDeltaNet(prefix);
      }
      AddFfn(layer, prefix);
    }
  }

  std::vector<Tensor> Take() { return std::move(tensors_); }

 private:
  Tensor& AddMatrix(std::string name, GgmlType type, Dims dims, float gain = 1) {
    const int dim_count = dims[2] > 1 ? 3 : 2;
    const float deviation = gain / std::sqrt(static_cast<float>(dims[0]));
    tensors_.push_back({.plan = {std::move(name), type, dim_count, dims}, .deviation = deviation});
    return tensors_.back();
  }
  void AddNorm(std::string name, int64_t size) {
    tensors_.push_back({.plan = {std::move(name), GgmlType::kF32, 1, {size, 1, 1, 1}}});
  }
  // A bias of `size` elements, or one for each of `slabs` experts.
  void AddBias(std::string name, int64_t size, int64_t slabs = 1,
               float deviation = kBiasDeviation) {
    const int dim_count = slabs > 1 ? 2 : 1;
    tensors_.push_back({.plan = {std::move(name), GgmlType::kF32, dim_count, {size, slabs, 1, 1}},
                        .deviation = deviation});
  }
  void AddBiases(const std::string& prefix);

  void AddEnds();
  void AddAttention(int64_t layer, const std::string& prefix);
  void AddDeltaNet(const std::string& prefix);
  void AddFfn(int64_t layer, const std::string& prefix);
  void MakeConstant(Tensor* rows);
  void SpareReserved(int64_t layer, Tensor* attention_output);
  void MakeRouter(int64_t layer, Tensor* router);

  const Shape& shape_;
  const int64_t layers_;
  const GgmlType type_;
  const std::shared_ptr<const RoutedStream> stream_;  // null: no routing target
  // The sum of all layers' additions to the residual stream has variance 1.
  const float into_stream_;
  std::vector<Tensor> tensors_;
};

void TensorList::AddEnds() {
  GgmlType head = engine::DefaultHeadType(type_);
  // `tidepool quantize` writes Q8_0, too, if the rows are not whole blocks.
  if (shape_.hidden % engine::TypeInfo(head).block_elements != 0) head = GgmlType::kQ8_0;
  const Dims dims = {shape_.hidden, shape_.vocabulary, 1, 1};
  Tensor& embedding =
      AddMatrix("token_embd.weight", shape_.tied ? head : type_, dims, kLogitDeviation);
  if (stream_ != nullptr) {
    embedding.deviation = 1;
    embedding.tail_columns = stream_->tail_columns;
    embedding.tail = [slow = stream_->slow](Random* random, absl::Span<float> values) {
      for (float& value : values) value = random->Bell();
      for (float& value : values.last(slow + 1)) value = 0;
      values.back() = kConstant;
    };
  }
  if (!shape_.tied) AddMatrix("output.weight", head, dims, kLogitDeviation);
  AddNorm("output_norm.weight", shape_.hidden);
}

void TensorList::AddAttention(int64_t layer, const std::string& prefix) {
  const int64_t q_width = shape_.heads * shape_.head_dim;
  const int64_t kv_width = shape_.kv_heads * shape_.head_dim;
  // In hybrid models, each head's query is followed by its gate.
  const int64_t q_rows = shape_.extras.delta.interval > 0 ? 2 * q_width : q_width;
  Tensor& q = AddMatrix(prefix + "attn_q.weight", type_, {shape_.hidden, q_rows, 1, 1});
  if (stream_ != nullptr && layer == 0) MakeConstant(&q);
  Tensor& k = AddMatrix(prefix + "attn_k.weight", type_, {shape_.hidden, kv_width, 1, 1});
  if (stream_ != nullptr && layer == 0) MakeConstant(&k);
  AddMatrix(prefix + "attn_v.weight", type_, {shape_.hidden, kv_width, 1, 1});
  Tensor& output =
      AddMatrix(prefix + "attn_output.weight", type_, {q_width, shape_.hidden, 1, 1}, into_stream_);
  if (stream_ != nullptr) SpareReserved(layer, &output);
  if (shape_.qk_norm) {
    AddNorm(prefix + "attn_q_norm.weight", shape_.head_dim);
    AddNorm(prefix + "attn_k_norm.weight", shape_.head_dim);
  }
  if (shape_.extras.post_norms) AddNorm(prefix + "post_attention_norm.weight", shape_.hidden);
  if (shape_.extras.biases) AddBiases(prefix);
}

void TensorList::AddDeltaNet(const std::string& prefix) {
  const DeltaNetShape& delta = shape_.extras.delta;
  const int64_t hidden = shape_.hidden;
  AddMatrix(prefix + "attn_qkv.weight", type_, {hidden, delta.channels(), 1, 1});
  AddMatrix(prefix + "attn_gate.weight", type_, {hidden, delta.v_size(), 1, 1});
  AddMatrix(prefix + "ssm_beta.weight", GgmlType::kF32, {hidden, delta.v_heads, 1, 1});
  AddMatrix(prefix + "ssm_alpha.weight", GgmlType::kF32, {hidden, delta.v_heads, 1, 1});
  AddMatrix(prefix + "ssm_conv1d.weight", GgmlType::kF32,
            {delta.conv_width, delta.channels(), 1, 1});
  AddBias(prefix + "ssm_dt.bias", delta.v_heads);
  AddBias(prefix + "ssm_a", delta.v_heads);
  // Some heads forget within a few tokens, and others remember hundreds of tokens.
  tensors_.back().row = [](int64_t, Random* random, absl::Span<float> values) {
    for (float& value : values) value = -std::exp(1.5f * random->Bell() - 2);
    return RowKind::kGiven;
  };
  AddNorm(prefix + "ssm_norm.weight", delta.dim);
  AddMatrix(prefix + "ssm_out.weight", type_, {delta.v_size(), hidden, 1, 1}, into_stream_);
}

// Adds the biases of attention, and its sinks. AddFfn adds the biases of experts.
void TensorList::AddBiases(const std::string& prefix) {
  const int64_t kv_width = shape_.kv_heads * shape_.head_dim;
  AddBias(prefix + "attn_q.bias", shape_.heads * shape_.head_dim);
  AddBias(prefix + "attn_k.bias", kv_width);
  AddBias(prefix + "attn_v.bias", kv_width);
  AddBias(prefix + "attn_output.bias", shape_.hidden);
  AddBias(prefix + "attn_sinks.weight", shape_.heads, 1, kSinkDeviation);
}

void TensorList::AddFfn(int64_t layer, const std::string& prefix) {
  AddNorm(absl::StrCat(prefix, shape_.extras.ffn_norm, ".weight"), shape_.hidden);
  const bool moe = shape_.experts > 0;
  const GgmlType type = shape_.extras.mxfp4_experts ? GgmlType::kMXFP4 : type_;
  const std::string suffix = moe ? "_exps.weight" : ".weight";
  const int64_t width = moe ? shape_.expert_width : shape_.ffn_width;
  const int64_t slabs = std::max<int64_t>(1, shape_.experts);
  if (moe) {
    Tensor& router = AddMatrix(prefix + "ffn_gate_inp.weight", GgmlType::kF32,
                               {shape_.hidden, shape_.experts, 1, 1});
    if (stream_ != nullptr) MakeRouter(layer, &router);
  }
  AddMatrix(prefix + "ffn_gate" + suffix, type, {shape_.hidden, width, slabs, 1});
  AddMatrix(prefix + "ffn_up" + suffix, type, {shape_.hidden, width, slabs, 1});
  float gain = into_stream_;
  if (stream_ != nullptr) {
    gain = static_cast<float>(std::sqrt(kGrowth * stream_->Variance(layer) /
                                        (kGatedVariance * stream_->mix.squared_weights)));
  }
  Tensor& down =
      AddMatrix(prefix + "ffn_down" + suffix, type, {width, shape_.hidden, slabs, 1}, gain);
  if (stream_ != nullptr) {
    down.row = [stream = stream_](int64_t row, Random*, absl::Span<float>) {
      return stream->IsReserved(row % stream->hidden) ? RowKind::kZero : RowKind::kRandom;
    };
  }
  if (shape_.extras.post_norms) AddNorm(prefix + "post_ffw_norm.weight", shape_.hidden);
  if (!shape_.extras.biases || !moe) return;
  AddBias(prefix + "ffn_gate_inp.bias", shape_.experts);
  AddBias(prefix + "ffn_gate_exps.bias", width, slabs);
  AddBias(prefix + "ffn_up_exps.bias", width, slabs);
  AddBias(prefix + "ffn_down_exps.bias", shape_.hidden, slabs);
}

// Makes the query or key of the first head the same vector for all tokens.
void TensorList::MakeConstant(Tensor* rows) {
  std::vector<float> sizes(shape_.head_dim);
  // The ordinary channels have a deviation of 1 before the norm.
  const float rms = std::sqrt(static_cast<float>(stream_->ordinary()) / shape_.hidden);
  for (const int64_t pair : stream_->head.pairs) {
    sizes[shape_.interleaved_rope() ? 2 * pair : pair] = stream_->head.size * rms / kConstant;
  }
  rows->row = [sizes](int64_t row, Random*, absl::Span<float> values) {
    if (row >= static_cast<int64_t>(sizes.size())) return RowKind::kRandom;
    if (sizes[row] == 0) return RowKind::kZero;
    std::fill(values.begin(), values.end(), 0.0f);
    values.back() = sizes[row];
    return RowKind::kGiven;
  };
}

// Layers add nothing to reserved channels. The only exception is the first head of the first layer,
// which adds its output to the slow channels.
void TensorList::SpareReserved(int64_t layer, Tensor* attention_output) {
  const int64_t dim = shape_.head_dim;
  const float deviation = static_cast<float>(
      kSlowDeviation / std::sqrt(stream_->head.squared_weights * static_cast<double>(dim)));
  attention_output->row = [stream = stream_, layer, dim, deviation](int64_t row, Random* random,
                                                                    absl::Span<float> values) {
    if (!stream->IsReserved(row)) return RowKind::kRandom;
    if (layer > 0 || row == stream->hidden - 1) return RowKind::kZero;
    std::fill(values.begin(), values.end(), 0.0f);
    for (float& value : values.first(dim)) value = deviation * random->Bell();
    return RowKind::kGiven;
  };
}

void TensorList::MakeRouter(int64_t layer, Tensor* router) {
  // The popular experts differ in each layer.
  std::vector<double> likings = Likings(shape_.experts);
  Random random(static_cast<uint64_t>(layer) + 1);
  for (size_t i = likings.size(); i > 1; --i) std::swap(likings[i - 1], likings[random.Next() % i]);
  router->row = [stream = stream_, layer, likings](int64_t row, Random* drawn,
                                                   absl::Span<float> values) {
    const RoutingMix& mix = stream->mix;
    const auto root = [](double value) { return static_cast<float>(std::sqrt(value)); };
    // Sizes of the parts, relative to an ordinary channel.
    const float width = root(stream->Variance(layer));
    const float fresh = root((1 - mix.slow_share) / static_cast<double>(stream->ordinary()));
    const float slow = root(mix.slow_share / static_cast<double>(stream->slow)) * width /
                       static_cast<float>(kSlowDeviation);
    for (float& value : values.first(stream->ordinary())) value = fresh * drawn->Bell();
    for (float& value : values.subspan(stream->ordinary(), stream->slow)) {
      value = slow * drawn->Bell();
    }
    values.back() = static_cast<float>(mix.liking * likings[row]) * width / kConstant;
    return RowKind::kGiven;
  };
}

absl::StatusOr<std::shared_ptr<const RoutedStream>> PlanStream(const Shape& shape,
                                                               const RoutingTarget& target) {
  if (!target.any()) return nullptr;
  if (shape.experts == 0 || shape.hidden < kMinHidden || shape.tied) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--skew and --persistence need a model with experts, a hidden size of at least ",
        kMinHidden, " and a separate output head; ", shape.name, " does not have them"));
  }
  auto stream = std::make_shared<RoutedStream>();
  stream->hidden = shape.hidden;
  stream->slow = std::min(kSlowChannels, shape.hidden / 4);
  const int64_t piece = RandomBlocks::PieceColumns(shape.hidden);
  stream->tail_columns = (stream->slow + 1 + piece - 1) / piece * piece;
  stream->head = MakeSlowHead(shape.head_dim, shape.rope_base);
  ASSIGN_OR_RETURN(stream->mix, SolveRouting(shape.experts, shape.experts_used,
                                             stream->head.correlation, target));
  return stream;
}

}  // namespace

absl::StatusOr<std::vector<Tensor>> ListTensors(const Shape& shape,
                                                const TensorListOptions& options) {
  ASSIGN_OR_RETURN(std::shared_ptr<const RoutedStream> stream, PlanStream(shape, options.routing));
  return TensorList(shape, options, std::move(stream)).Take();
}

}  // namespace tidepool::tools
