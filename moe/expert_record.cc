#include "moe/expert_record.h"

#include <algorithm>

#include "kernels/packed_matrix.h"
#include "kernels/tensor.h"
#include "xxhash.h"

namespace tidepool::moe {
namespace {

int64_t RoundUp(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

int64_t BytesOf(const kernels::PackedMatrix& matrix) {
  return static_cast<int64_t>(kernels::PackedBytes(matrix.dtype, matrix.rows, matrix.cols));
}

int64_t BytesOf(absl::Span<const float> bias) {
  return static_cast<int64_t>(bias.size() * sizeof(float));
}

// Returns the position for `bytes` bytes at or after *end, and sets *end to the position after
// them.
int64_t Place(int64_t bytes, int64_t* end) {
  const int64_t begin = RoundUp(*end, static_cast<int64_t>(kernels::kAlignment));
  *end = begin + bytes;
  return begin;
}

}  // namespace

ExpertLayout::ExpertLayout(const kernels::FfnWeights& shapes) : shapes_(shapes) {
  for (auto bias : {&shapes_.gate_bias, &shapes_.up_bias, &shapes_.down_bias}) {
    *bias = absl::MakeConstSpan(static_cast<const float*>(nullptr), bias->size());
  }
  shapes_.gate.data = shapes_.up.data = shapes_.down.data = nullptr;
  int64_t end = BytesOf(shapes.gate);
  up_at_ = Place(BytesOf(shapes.up), &end);
  down_at_ = Place(BytesOf(shapes.down), &end);
  gate_bias_at_ = Place(BytesOf(shapes.gate_bias), &end);
  up_bias_at_ = Place(BytesOf(shapes.up_bias), &end);
  down_bias_at_ = Place(BytesOf(shapes.down_bias), &end);
  bytes_ = RoundUp(end, kRecordAlignment);
}

kernels::FfnWeights ExpertLayout::At(const std::byte* record) const {
  kernels::FfnWeights weights = shapes_;
  weights.gate.data = record;
  weights.up.data = record + up_at_;
  weights.down.data = record + down_at_;
  const auto bias = [&](int64_t at, size_t size) {
    return absl::MakeConstSpan(reinterpret_cast<const float*>(record + at), size);
  };
  weights.gate_bias = bias(gate_bias_at_, shapes_.gate_bias.size());
  weights.up_bias = bias(up_bias_at_, shapes_.up_bias.size());
  weights.down_bias = bias(down_bias_at_, shapes_.down_bias.size());
  return weights;
}

ExpertBiases ExpertLayout::BiasesAt(std::byte* record) const {
  const auto bias = [&](int64_t at, size_t size) {
    return absl::MakeSpan(reinterpret_cast<float*>(record + at), size);
  };
  return {bias(gate_bias_at_, shapes_.gate_bias.size()), bias(up_bias_at_, shapes_.up_bias.size()),
          bias(down_bias_at_, shapes_.down_bias.size())};
}

const ExpertRecord& ExpertRecords::At(int64_t expert) const {
  const auto per_layer = static_cast<int64_t>(layers.front().size());
  return layers[expert / per_layer][expert % per_layer];
}

int64_t ExpertRecords::largest_bytes() const {
  int64_t largest = 0;
  for (const int64_t bytes : layer_bytes()) largest = std::max(largest, bytes);
  return largest;
}

std::vector<int64_t> ExpertRecords::layer_bytes() const {
  std::vector<int64_t> bytes;
  for (const auto& layer : layers) {
    int64_t& largest = bytes.emplace_back(0);
    for (const ExpertRecord& record : layer) largest = std::max(largest, record.layout.bytes());
  }
  return bytes;
}

int64_t ExpertRecords::total_bytes() const {
  int64_t total = 0;
  for (const auto& layer : layers) {
    for (const ExpertRecord& record : layer) total += record.layout.bytes();
  }
  return total;
}

uint64_t RecordHash(const std::byte* record, int64_t bytes) {
  return XXH3_64bits(record, static_cast<size_t>(bytes));
}

}  // namespace tidepool::moe
