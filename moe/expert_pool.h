// ExpertPool: the memory of a tier, as equal buffers of one record each.
#ifndef TIDEPOOL_MOE_EXPERT_POOL_H_
#define TIDEPOOL_MOE_EXPERT_POOL_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "moe/mapped_memory.h"

namespace tidepool::moe {

// Thread-compatible. Buffers are known by number, [0, most); the first limit() of them may be in
// use. A buffer takes memory from its first use on.
class ExpertPool {
 public:
  // Requires: 0 < limit <= most, buffer_bytes a multiple of kRecordAlignment. RESOURCE_EXHAUSTED:
  // no address space, or no memory for `limit` of them.
  static absl::StatusOr<ExpertPool> Create(int64_t buffer_bytes, int32_t limit, int32_t most);

  // A free buffer, or -1.
  int32_t Take();
  // Requires: in use.
  void GiveBack(int32_t buffer);

  // How many may be in use from now on. Lowered below those in use, it gives memory back as they
  // come back. RESOURCE_EXHAUSTED: the machine does not promise so much more, and the limit stays.
  // Requires: 0 < limit <= most.
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
  std::vector<int32_t> touched_;   // free, with memory; the latest on top
  std::vector<int32_t> fresh_;     // free, without
  std::vector<int32_t> reserved_;  // address space alone
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_EXPERT_POOL_H_
