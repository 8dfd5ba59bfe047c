// ExpertPool: the memory for experts, divided into equal buffers. Each buffer has room for one
// record.
#ifndef TIDEPOOL_MOE_EXPERT_POOL_H_
#define TIDEPOOL_MOE_EXPERT_POOL_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "moe/mapped_memory.h"

namespace tidepool::moe {

// Host memory that is pinned for a backend's copies until the object is destroyed. Move-only.
class PinnedRange {
 public:
  static absl::StatusOr<PinnedRange> Create(absl::Span<std::byte> memory,
                                            kernels::KernelBackend* backend);
  PinnedRange() = default;
  PinnedRange(PinnedRange&& other) noexcept;
  PinnedRange& operator=(PinnedRange&& other) noexcept;
  ~PinnedRange();

  int64_t bytes() const { return static_cast<int64_t>(memory_.size()); }

 private:
  absl::Span<std::byte> memory_;
  kernels::KernelBackend* backend_ = nullptr;
};

// Thread-compatible. Buffers are numbered from 0 to `most` - 1. At most limit() of them may be in
// use at the same time. The memory of a buffer is allocated when the buffer is first used. In a
// pinned pool, the memory is allocated and pinned as soon as the limit allows the buffer.
class ExpertPool {
 public:
  // Requires: 0 < limit <= most, and buffer_bytes is a multiple of kRecordAlignment. If `pin_for`
  // is not null, buffers are pinned for the copies of this backend, which must outlive the pool.
  // Returns RESOURCE_EXHAUSTED if there is not enough address space, or if `limit` buffers cannot
  // be allocated or pinned.
  static absl::StatusOr<ExpertPool> Create(int64_t buffer_bytes, int32_t limit, int32_t most,
                                           kernels::KernelBackend* pin_for = nullptr);

  // Returns a free buffer, or -1 if limit() buffers are in use.
  int32_t Take();
  // Requires: the buffer is in use, and no copy reads it.
  void GiveBack(int32_t buffer);

  // Sets the maximum number of buffers in use. If more are in use now, the memory of the excess
  // buffers is freed when they are returned. If the system cannot commit or pin the additional
  // memory, returns RESOURCE_EXHAUSTED and does not change the limit. Requires: 0 < limit <= most.
  absl::Status SetLimit(int32_t limit);

  std::byte* data(int32_t buffer) const { return memory_.data() + buffer * buffer_bytes_; }
  // In a pinned pool, this size is rounded up to whole pages.
  int64_t buffer_bytes() const { return buffer_bytes_; }
  int32_t limit() const { return limit_; }
  int32_t in_use() const { return in_use_; }

 private:
  ExpertPool(MappedMemory memory, int64_t buffer_bytes, kernels::KernelBackend* pin_for)
      : memory_(std::move(memory)), buffer_bytes_(buffer_bytes), pin_for_(pin_for) {}

  int32_t committed() const {
    return in_use_ + static_cast<int32_t>(touched_.size() + fresh_.size());
  }
  void Trim();
  // Pins a buffer that has memory, if the pool is pinned.
  absl::Status Pin(int32_t buffer);

  MappedMemory memory_;
  int64_t buffer_bytes_;
  kernels::KernelBackend* pin_for_;
  std::vector<PinnedRange> pins_;  // by buffer, if the pool is pinned; destroyed before the memory
  int32_t limit_ = 0;
  int32_t in_use_ = 0;
  // free buffers that have memory; the most recently used one is last
  std::vector<int32_t> touched_;
  std::vector<int32_t> fresh_;     // free buffers that have no memory yet
  std::vector<int32_t> reserved_;  // buffers above the limit; they only have address space
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_EXPERT_POOL_H_
