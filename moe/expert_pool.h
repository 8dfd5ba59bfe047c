// ExpertPool: the memory of a tier, as equal buffers for one record each.
#ifndef TIDEPOOL_MOE_EXPERT_POOL_H_
#define TIDEPOOL_MOE_EXPERT_POOL_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "moe/mapped_memory.h"

namespace tidepool::moe {

// Thread-compatible. Buffers are numbered [0, most). At most limit() of them may be in use. A
// buffer allocates its memory at its first use.
class ExpertPool {
 public:
  // Requires: 0 < limit <= most, and buffer_bytes is a multiple of kRecordAlignment.
  // RESOURCE_EXHAUSTED if there is no address space, or no memory for `limit` buffers.
  static absl::StatusOr<ExpertPool> Create(int64_t buffer_bytes, int32_t limit, int32_t most);

  // Returns a free buffer, or -1.
  int32_t Take();
  // Requires: the buffer is in use.
  void GiveBack(int32_t buffer);

  // Sets the maximum number of buffers in use. If more are in use now, their memory is freed when
  // they are returned. RESOURCE_EXHAUSTED if the system cannot commit the additional memory; the
  // limit does not change. Requires: 0 < limit <= most.
  absl::Status SetLimit(int32_t limit);

  std::byte* data(int32_t buffer) const { return memory_.data() + buffer * buffer_bytes_; }
  int64_t buffer_bytes() const { return buffer_bytes_; }
  int32_t limit() const { return limit_; }
  int32_t in_use() const { return in_use_; }

 private:
  ExpertPool(MappedMemory memory, int64_t buffer_bytes)
      : memory_(std::move(memory)), buffer_bytes_(buffer_bytes) {}

  int32_t committed() const {
    return in_use_ + static_cast<int32_t>(touched_.size() + fresh_.size());
  }
  void Trim();

  MappedMemory memory_;
  int64_t buffer_bytes_;
  int32_t limit_ = 0;
  int32_t in_use_ = 0;
  std::vector<int32_t> touched_;   // free, with memory; the most recently used is last
  std::vector<int32_t> fresh_;     // free, without memory
  std::vector<int32_t> reserved_;  // only address space
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_EXPERT_POOL_H_
