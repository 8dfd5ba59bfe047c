#include "moe/device/device_pool.h"

#include <algorithm>
#include <utility>

#include "kernels/allocate.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace tidepool::moe {

absl::StatusOr<DevicePool> DevicePool::Create(const DevicePoolOptions& options,
                                              kernels::Memory* memory) {
  CHECK(options.buffer_bytes > 0 && options.limit > 0);
  DevicePool pool(options, memory);
  RETURN_IF_ERROR(pool.Grow(options.limit));
  return pool;
}

int32_t DevicePool::Take() {
  if (in_use_ >= options_.limit) return -1;
  CHECK(!free_.empty());
  std::pop_heap(free_.begin(), free_.end(),
                [this](int32_t a, int32_t b) { return IsBefore(b, a); });
  const int32_t buffer = free_.back();
  free_.pop_back();
  ++in_use_;
  return buffer;
}

int32_t DevicePool::TakeLowest() {
  CHECK(available() > 0 && !free_.empty());
  const auto lowest = std::min_element(free_.begin(), free_.end());
  const int32_t buffer = *lowest;
  free_.erase(lowest);
  OrderFree();
  ++in_use_;
  return buffer;
}

void DevicePool::GiveBack(int32_t buffer) {
  CHECK(in_use_ > 0);
  --in_use_;
  settled_[buffer] = all_settled_ = false;
  free_.push_back(buffer);
  std::push_heap(free_.begin(), free_.end(),
                 [this](int32_t a, int32_t b) { return IsBefore(b, a); });
}

bool DevicePool::Settle() {
  if (std::exchange(all_settled_, true)) return false;
  for (const int32_t buffer : free_) settled_[buffer] = true;
  OrderFree();
  return true;
}

void DevicePool::OrderFree() {
  std::make_heap(free_.begin(), free_.end(),
                 [this](int32_t a, int32_t b) { return IsBefore(b, a); });
}

absl::Status DevicePool::SetLimit(int32_t limit) {
  CHECK(limit > 0 && in_use_ <= limit);
  if (limit > options_.limit) RETURN_IF_ERROR(Grow(limit));
  if (limit < options_.limit) Shrink(limit);
  options_.limit = limit;
  return absl::OkStatus();
}

// Allocates chunks until `limit` buffers have memory. On error, frees them.
absl::Status DevicePool::Grow(int32_t limit) {
  const size_t chunks_before = chunks_.size();
  const size_t buffers_before = data_.size();
  const int64_t per_chunk = std::max<int64_t>(1, options_.chunk_bytes / options_.buffer_bytes);
  while (static_cast<int32_t>(data_.size()) < limit) {
    const auto count = std::min<int64_t>(per_chunk, limit - static_cast<int64_t>(data_.size()));
    absl::StatusOr<kernels::Buffer> memory = kernels::AllocateBuffer(
        static_cast<size_t>(count * options_.buffer_bytes),
        {.what = "a part of the experts' memory", .remedy = "reduce --expert-memory"}, memory_);
    if (!memory.ok()) {
      chunks_.resize(chunks_before);
      data_.resize(buffers_before);
      return memory.status();
    }
    for (int64_t i = 0; i < count; ++i) data_.push_back(memory->data() + i * options_.buffer_bytes);
    chunks_.push_back({*std::move(memory), static_cast<int32_t>(data_.size())});
  }
  for (size_t buffer = buffers_before; buffer < data_.size(); ++buffer) {
    free_.push_back(static_cast<int32_t>(buffer));
  }
  settled_.resize(data_.size(), true);
  OrderFree();
  return absl::OkStatus();
}

int32_t DevicePool::SizeFor(int32_t limit) const {
  for (const Chunk& chunk : chunks_) {
    if (chunk.end >= limit) return chunk.end;
  }
  return static_cast<int32_t>(data_.size());
}

void DevicePool::Shrink(int32_t limit) {
  const int32_t size = SizeFor(limit);
  const auto freed = static_cast<size_t>(
      std::count_if(free_.begin(), free_.end(), [size](int32_t buffer) { return buffer >= size; }));
  CHECK_EQ(freed, data_.size() - static_cast<size_t>(size)) << "buffers to be freed are in use";
  std::erase_if(free_, [size](int32_t buffer) { return buffer >= size; });
  OrderFree();
  data_.resize(size);
  settled_.resize(size);
  while (!chunks_.empty() && chunks_.back().end > size) chunks_.pop_back();
}

}  // namespace tidepool::moe
