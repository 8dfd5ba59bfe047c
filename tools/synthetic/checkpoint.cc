#include "tools/synthetic/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/quantize.h"
#include "engine/checkpoint/requantize.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/thread_pool.h"
#include "tools/synthetic/metadata.h"
#include "tools/synthetic/random_blocks.h"

namespace tidepool::tools {
namespace {

using engine::GgmlType;
using engine::GgufTensorPlan;

// How far the logits spread.
constexpr float kLogitDeviation = 2.0f;
constexpr uint64_t kChunkBytes = 16 << 20;

struct Tensor {
  GgufTensorPlan plan;
  float deviation = 0;  // of random weights; 0: all ones
};

// The tensors of a model, in the order of its layers.
class TensorList {
 public:
  TensorList(const Shape& shape, int64_t layers, GgmlType type)
      : shape_(shape), layers_(layers), type_(type) {
    AddEnds();
    for (int64_t layer = 0; layer < layers; ++layer) AddLayer(absl::StrCat("blk.", layer, "."));
  }

  std::vector<Tensor> Take() { return std::move(tensors_); }

 private:
  void AddMatrix(std::string name, GgmlType type, std::array<int64_t, 4> dims, float gain = 1) {
    const int dim_count = dims[2] > 1 ? 3 : 2;
    const float deviation = gain / std::sqrt(static_cast<float>(dims[0]));
    tensors_.push_back({{std::move(name), type, dim_count, dims}, deviation});
  }
  void AddNorm(std::string name, int64_t size) {
    tensors_.push_back({{std::move(name), GgmlType::kF32, 1, {size, 1, 1, 1}}, 0});
  }

  void AddEnds() {
    const GgmlType head = engine::DefaultHeadType(type_);
    const std::array<int64_t, 4> dims = {shape_.hidden, shape_.vocabulary, 1, 1};
    AddMatrix("token_embd.weight", shape_.tied ? head : type_, dims, kLogitDeviation);
    if (!shape_.tied) AddMatrix("output.weight", head, dims, kLogitDeviation);
    AddNorm("output_norm.weight", shape_.hidden);
  }

  void AddLayer(const std::string& prefix) {
    const int64_t q = shape_.heads * shape_.head_dim;
    const int64_t kv = shape_.kv_heads * shape_.head_dim;
    // What all layers add to the residual stream has the variance of one.
    const float into_stream = 1 / std::sqrt(2 * static_cast<float>(layers_));
    AddNorm(prefix + "attn_norm.weight", shape_.hidden);
    AddMatrix(prefix + "attn_q.weight", type_, {shape_.hidden, q, 1, 1});
    AddMatrix(prefix + "attn_k.weight", type_, {shape_.hidden, kv, 1, 1});
    AddMatrix(prefix + "attn_v.weight", type_, {shape_.hidden, kv, 1, 1});
    AddMatrix(prefix + "attn_output.weight", type_, {q, shape_.hidden, 1, 1}, into_stream);
    if (shape_.qk_norm) {
      AddNorm(prefix + "attn_q_norm.weight", shape_.head_dim);
      AddNorm(prefix + "attn_k_norm.weight", shape_.head_dim);
    }
    AddNorm(prefix + "ffn_norm.weight", shape_.hidden);
    const bool moe = shape_.experts > 0;
    const std::string suffix = moe ? "_exps.weight" : ".weight";
    const int64_t width = moe ? shape_.expert_width : shape_.ffn_width;
    const int64_t slabs = std::max<int64_t>(1, shape_.experts);
    if (moe) {
      AddMatrix(prefix + "ffn_gate_inp.weight", GgmlType::kF32,
                {shape_.hidden, shape_.experts, 1, 1});
    }
    AddMatrix(prefix + "ffn_gate" + suffix, type_, {shape_.hidden, width, slabs, 1});
    AddMatrix(prefix + "ffn_up" + suffix, type_, {shape_.hidden, width, slabs, 1});
    AddMatrix(prefix + "ffn_down" + suffix, type_, {width, shape_.hidden, slabs, 1}, into_stream);
  }

  const Shape& shape_;
  const int64_t layers_;
  const GgmlType type_;
  std::vector<Tensor> tensors_;
};

// Makes each kind of pieces once. Thread-compatible.
class BlockStock {
 public:
  explicit BlockStock(uint64_t seed) : seed_(seed) {}

  const RandomBlocks& For(const Tensor& tensor) {
    const GgufTensorPlan& plan = tensor.plan;
    std::unique_ptr<RandomBlocks>& blocks = stock_[{plan.type, plan.dims[0], tensor.deviation}];
    if (blocks == nullptr) {
      blocks = std::make_unique<RandomBlocks>(plan.type, plan.dims[0], tensor.deviation,
                                              seed_ + stock_.size());
    }
    return *blocks;
  }

 private:
  const uint64_t seed_;
  std::map<std::tuple<GgmlType, int64_t, float>, std::unique_ptr<RandomBlocks>> stock_;
};

absl::Status WriteOnes(const GgufTensorPlan& plan, engine::GgufFileWriter* writer) {
  const std::vector<float> ones(plan.bytes() / sizeof(float), 1.0f);
  return writer->Append(
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(ones.data()), plan.bytes()));
}

// Rows of `blocks`; the row's own number and `seed` decide what is in it.
absl::Status WriteRows(const RandomBlocks& blocks, int64_t rows, uint64_t seed,
                       base::ThreadPool* pool, engine::GgufFileWriter* writer) {
  const int64_t row_bytes = static_cast<int64_t>(blocks.row_bytes());
  const int64_t chunk = std::max<int64_t>(1, kChunkBytes / row_bytes);
  std::vector<std::byte> bytes(std::min(chunk, rows) * row_bytes);
  for (int64_t first = 0; first < rows; first += chunk) {
    const int64_t count = std::min(chunk, rows - first);
    pool->ParallelFor(count, 64, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) {
        blocks.FillRow(Random(seed ^ Random(first + row).Next()).Next(),
                       bytes.data() + row * row_bytes);
      }
    });
    RETURN_IF_ERROR(writer->Append(absl::MakeConstSpan(bytes.data(), count * row_bytes)));
  }
  return absl::OkStatus();
}

absl::Status CheckType(const std::vector<Tensor>& tensors, const Shape& shape) {
  for (const Tensor& tensor : tensors) {
    const engine::GgmlTypeInfo& info = engine::TypeInfo(tensor.plan.type);
    if (!engine::CanQuantize(info.type)) {
      return absl::InvalidArgumentError(
          absl::StrCat("weights of type ", info.name, " cannot be written"));
    }
    if (tensor.plan.dims[0] % info.block_elements == 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(shape.name, ": ", tensor.plan.name, " has rows of ", tensor.plan.dims[0],
                     ", no multiple of the ", info.block_elements, " that ", info.name, " takes"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<uint64_t> WriteSynthetic(const Shape& shape, const std::string& path,
                                        const SyntheticOptions& options) {
  const int64_t layers = options.layers > 0 ? options.layers : shape.layers;
  const std::vector<Tensor> tensors = TensorList(shape, layers, options.type).Take();
  RETURN_IF_ERROR(CheckType(tensors, shape));
  std::vector<GgufTensorPlan> plans;
  uint64_t total = 0;
  for (const Tensor& tensor : tensors) {
    plans.push_back(tensor.plan);
    total += tensor.plan.bytes();
  }
  engine::GgufMetadata metadata = MakeMetadata(shape, layers);
  metadata.SetU32("general.file_type", engine::FileTypeNumber(options.type));
  ASSIGN_OR_RETURN(
      const std::unique_ptr<engine::GgufFileWriter> writer,
      engine::GgufFileWriter::Create(path, metadata, std::move(plans), options.existing));
  base::ThreadPool pool(options.threads);
  BlockStock stock(options.seed);
  Random seeds(options.seed);
  uint64_t written = 0;
  for (const Tensor& tensor : tensors) {
    if (options.progress) options.progress(static_cast<double>(written) / total);
    const uint64_t seed = seeds.Next();
    RETURN_IF_ERROR(tensor.deviation == 0 ? WriteOnes(tensor.plan, writer.get())
                                          : WriteRows(stock.For(tensor), tensor.plan.rows(), seed,
                                                      &pool, writer.get()));
    written += tensor.plan.bytes();
  }
  RETURN_IF_ERROR(writer->Finish());
  return writer->file_bytes();
}

}  // namespace tidepool::tools
