#include "tools/synthetic/checkpoint.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
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
#include "tools/synthetic/tensor_list.h"

namespace tidepool::tools {
namespace {

using engine::GgmlType;
using engine::GgufTensorPlan;

constexpr uint64_t kChunkBytes = 16 << 20;

// Creates each kind of pieces only once. Keeps the latest kind in memory. Thread-compatible.
class BlockStock {
 public:
  explicit BlockStock(uint64_t seed) : seed_(seed) {}

  const RandomBlocks& For(const Tensor& tensor) {
    const GgufTensorPlan& plan = tensor.plan;
    const Key key = {plan.type, plan.dims[0], tensor.deviation};
    const auto found = stock_.find(key);
    if (found != stock_.end()) return *found->second;
    if (stock_.size() >= kMaxKinds) stock_.clear();
    return *(stock_[key] = std::make_unique<RandomBlocks>(plan.type, plan.dims[0], tensor.deviation,
                                                          seed_ + ++made_));
  }

 private:
  using Key = std::tuple<GgmlType, int64_t, float>;
  static constexpr size_t kMaxKinds = 12;

  const uint64_t seed_;
  uint64_t made_ = 0;
  std::map<Key, std::unique_ptr<RandomBlocks>> stock_;
};

absl::Status WriteOnes(const GgufTensorPlan& plan, engine::GgufFileWriter* writer) {
  const std::vector<float> ones(plan.bytes() / sizeof(float), 1.0f);
  return writer->Append(
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(ones.data()), plan.bytes()));
}

// Generates the rows of one tensor. A row depends only on its number and `seed`. Immutable,
// thread-safe.
class RowMaker {
 public:
  RowMaker(const Tensor& tensor, const RandomBlocks& blocks, uint64_t seed)
      : tensor_(tensor), blocks_(blocks), seed_(seed) {
    if (tensor.tail) {
      const engine::GgmlTypeInfo& info = engine::TypeInfo(tensor.plan.type);
      tail_.emplace(info.type, tensor.tail_columns, seed, tensor.tail);
    }
  }

  // `values` is scratch space for one row.
  void Make(int64_t row, absl::Span<float> values, std::byte* out) const {
    const uint64_t row_seed = Random(seed_ ^ Random(row).Next()).Next();
    RowKind kind = RowKind::kRandom;
    if (tensor_.row) {
      Random random(row_seed);
      kind = tensor_.row(row, &random, values);
    }
    if (kind == RowKind::kRandom) {
      blocks_.FillRow(row_seed, out);
      if (tail_.has_value()) {
        tail_->FillRow(~row_seed, out + blocks_.row_bytes() - tail_->row_bytes());
      }
      return;
    }
    if (kind == RowKind::kZero) std::fill(values.begin(), values.end(), 0.0f);
    engine::Quantize(tensor_.plan.type, values, out);
  }

 private:
  const Tensor& tensor_;
  const RandomBlocks& blocks_;
  const uint64_t seed_;
  std::optional<RandomBlocks> tail_;
};

absl::Status WriteRows(const Tensor& tensor, const RowMaker& maker, base::ThreadPool* pool,
                       engine::GgufFileWriter* writer) {
  const int64_t rows = tensor.plan.rows();
  const int64_t row_bytes = static_cast<int64_t>(tensor.plan.row_bytes());
  const int64_t chunk = std::max<int64_t>(1, kChunkBytes / row_bytes);
  std::vector<std::byte> bytes(std::min(chunk, rows) * row_bytes);
  for (int64_t first = 0; first < rows; first += chunk) {
    const int64_t count = std::min(chunk, rows - first);
    pool->ParallelFor(count, 64, [&](int64_t begin, int64_t end, int) {
      std::vector<float> values(tensor.row ? tensor.plan.dims[0] : 0);
      for (int64_t row = begin; row < end; ++row) {
        maker.Make(first + row, absl::MakeSpan(values), bytes.data() + row * row_bytes);
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
                     ", but ", info.name, " needs a multiple of ", info.block_elements));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<uint64_t> WriteSynthetic(const Shape& shape, const std::string& path,
                                        const SyntheticOptions& options) {
  RETURN_IF_ERROR(CheckShape(shape));
  ASSIGN_OR_RETURN(const std::vector<Tensor> tensors,
                   ListTensors(shape, {.type = options.type, .routing = options.routing}));
  RETURN_IF_ERROR(CheckType(tensors, shape));
  std::vector<GgufTensorPlan> plans;
  uint64_t total = 0;
  for (const Tensor& tensor : tensors) {
    plans.push_back(tensor.plan);
    total += tensor.plan.bytes();
  }
  engine::GgufMetadata metadata = MakeMetadata(shape);
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
    RETURN_IF_ERROR(
        tensor.deviation == 0
            ? WriteOnes(tensor.plan, writer.get())
            : WriteRows(tensor, RowMaker(tensor, stock.For(tensor), seed), &pool, writer.get()));
    written += tensor.plan.bytes();
  }
  RETURN_IF_ERROR(writer->Finish());
  return writer->file_bytes();
}

}  // namespace tidepool::tools
