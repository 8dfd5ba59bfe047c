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

}  // namespace

ExpertLayout::ExpertLayout(const kernels::FfnWeights& shapes) : shapes_(shapes) {
  constexpr auto kUnit = static_cast<int64_t>(kernels::kAlignment);
  shapes_.gate.data = shapes_.up.data = shapes_.down.data = nullptr;
  up_at_ = RoundUp(BytesOf(shapes.gate), kUnit);
  down_at_ = up_at_ + RoundUp(BytesOf(shapes.up), kUnit);
  bytes_ = RoundUp(down_at_ + BytesOf(shapes.down), kRecordAlignment);
}

kernels::FfnWeights ExpertLayout::At(const std::byte* record) const {
  kernels::FfnWeights weights = shapes_;
  weights.gate.data = record;
  weights.up.data = record + up_at_;
  weights.down.data = record + down_at_;
  return weights;
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
