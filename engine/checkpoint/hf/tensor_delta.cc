// TensorTaker: makes the tensors of layers without attention.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/dequantize.h"
#include "engine/checkpoint/hf/tensor_takes.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::hf {

absl::Status TensorTaker::TakeDelta(Take take, const TensorSource& source, GgufTensor* tensor) {
  switch (take) {
    case Take::kFusedDeltaQkv:
    case Take::kFusedDeltaGate:
      return TakeFusedDelta(take, source, tensor);
    case Take::kDeltaColumns:
      return TakeColumns(source, tensor);
    case Take::kConv:
    case Take::kDeltaConv:
      return TakeConv(take, source, tensor);
    case Take::kDeltaDecay:
      return TakeDeltaVector(take, source, tensor);
    default:
      if (tensor->dim_count == 1) return TakeDeltaVector(take, source, tensor);
      return TakeDeltaRows(take, source, tensor);
  }
}

void TensorTaker::TakeRuns(const std::vector<Run>& runs, GgufTensor* tensor) {
  int64_t unit = 0;
  int64_t rows = 0;
  bool in_order = true;
  for (const Run& run : runs) {
    in_order = in_order && run.first == rows;
    unit = std::gcd(unit, run.rows);
    rows += run.rows;
  }
  if (in_order && rows == tensor->dims[1]) return;
  const auto row_bytes = static_cast<int64_t>(tensor->row_bytes());
  const std::byte* const from = tensor->data;
  for (const Run& run : runs) {
    for (int64_t row = run.first; row < run.first + run.rows; row += unit) {
      tensor->slabs.push_back(from + row * row_bytes);
    }
  }
  tensor->slab_rows = unit;
  tensor->dims[1] = rows;
  tensor->bytes = rows * row_bytes;
  tensor->file_offset += tensor->slabs[0] - from;
  tensor->data = tensor->slabs[0];
}

absl::Status TensorTaker::TakeDeltaRows(Take take, const TensorSource& source, GgufTensor* tensor) {
  const DeltaSizes& delta = model_.delta;
  const int64_t before = take == Take::kDeltaQkv ? 2 * delta.k_size() : 0;
  const int64_t rows = tensor->dims[1];
  const int64_t of_head = (rows - before) / delta.v_heads;
  if (tensor->dim_count != 2 || of_head < 1 || before + of_head * delta.v_heads != rows) {
    return WrongShape(source, absl::StrCat(before, " rows and those of ", delta.v_heads, " heads"));
  }
  std::vector<Run> runs;
  if (before > 0) runs.push_back({0, before});
  for (const int64_t head : model_.ValueHeads()) {
    runs.push_back({before + head * of_head, of_head});
  }
  TakeRuns(runs, tensor);
  return absl::OkStatus();
}

absl::Status TensorTaker::TakeFusedDelta(Take take, const TensorSource& source,
                                         GgufTensor* tensor) {
  const DeltaSizes& delta = model_.delta;
  const int64_t k = delta.k_dim;
  const int64_t v = delta.v_size() / delta.k_heads;
  const int64_t all = 2 * k + 2 * v;
  if (tensor->dim_count != 2 || tensor->dims[1] != delta.k_heads * all) {
    return WrongShape(source, absl::StrCat(delta.k_heads * all, " rows"));
  }
  std::vector<Run> runs;
  const auto take_all = [&](int64_t first, int64_t rows) {
    for (int64_t head = 0; head < delta.k_heads; ++head) {
      runs.push_back({head * all + first, rows});
    }
  };
  if (take == Take::kFusedDeltaQkv) {
    take_all(0, k);
    take_all(k, k);
    take_all(2 * k, v);
  } else {
    take_all(2 * k + v, v);
  }
  TakeRuns(runs, tensor);
  return absl::OkStatus();
}

absl::Status TensorTaker::TakeColumns(const TensorSource& source, GgufTensor* tensor) {
  const DeltaSizes& delta = model_.delta;
  if (tensor->dim_count != 2 || tensor->dims[0] != delta.v_size()) {
    return WrongShape(source, absl::StrCat("rows of ", delta.v_size(), " elements"));
  }
  const std::vector<int64_t> heads = model_.ValueHeads();
  if (std::is_sorted(heads.begin(), heads.end())) return absl::OkStatus();
  const std::byte* from = tensor->data;
  const int64_t head_bytes = delta.v_dim * TypeInfo(tensor->type).block_bytes;
  std::byte* to = OwnData(tensor);
  for (int64_t row = 0; row < tensor->dims[1]; ++row) {
    for (const int64_t head : heads) {
      std::memcpy(to, from + head * head_bytes, head_bytes);
      to += head_bytes;
    }
    from += delta.v_heads * head_bytes;
  }
  Release(source.data, source.tensor->bytes);
  return absl::OkStatus();
}

absl::Status TensorTaker::TakeConv(Take take, const TensorSource& source, GgufTensor* tensor) {
  const DeltaSizes& delta = model_.delta;
  const auto [width, one, channels, _] = tensor->dims;
  const bool is_delta = take == Take::kDeltaConv;
  if (tensor->dim_count != 3 || one != 1 || width != model_.conv_width ||
      (is_delta && channels != delta.channels())) {
    return WrongShape(
        source, absl::StrCat("[", is_delta ? absl::StrCat(delta.channels()) : "channels", ", 1, ",
                             model_.conv_width, "]"));
  }
  tensor->dim_count = 2;
  tensor->dims = {width, channels, 1, 1};
  std::vector<float> values(tensor->elements());
  Dequantize(tensor->type, tensor->data, absl::MakeSpan(values));
  if (is_delta) {
    const std::vector<float> stored = values;
    const int64_t head = delta.v_dim * width;
    auto to = values.begin() + 2 * delta.k_size() * width;
    for (const int64_t from : model_.ValueHeads()) {
      to = std::copy_n(stored.begin() + 2 * delta.k_size() * width + from * head, head, to);
    }
  }
  SetFloats(values, tensor);
  return absl::OkStatus();
}

absl::Status TensorTaker::TakeDeltaVector(Take take, const TensorSource& source,
                                          GgufTensor* tensor) {
  if (tensor->dim_count != 1 || tensor->dims[0] != model_.delta.v_heads) {
    return WrongShape(source, absl::StrCat("[", model_.delta.v_heads, "]"));
  }
  std::vector<float> stored(tensor->elements());
  Dequantize(tensor->type, tensor->data, absl::MakeSpan(stored));
  std::vector<float> values;
  for (const int64_t head : model_.ValueHeads()) {
    const double value = stored[head];
    values.push_back(static_cast<float>(take == Take::kDeltaDecay ? -std::exp(value) : value));
  }
  SetFloats(values, tensor);
  return absl::OkStatus();
}

void TensorTaker::SetFloats(absl::Span<const float> values, GgufTensor* tensor) {
  tensor->type = GgmlType::kF32;
  std::memcpy(OwnData(tensor), values.data(), values.size() * sizeof(float));
}

}  // namespace tidepool::engine::hf
