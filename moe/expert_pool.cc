#include "moe/expert_pool.h"

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "moe/expert_record.h"

namespace tidepool::moe {

absl::StatusOr<ExpertPool> ExpertPool::Create(int64_t buffer_bytes, int32_t limit, int32_t most) {
  CHECK(buffer_bytes > 0 && buffer_bytes % kRecordAlignment == 0) << buffer_bytes;
  CHECK(limit > 0 && limit <= most) << limit << " of " << most;
  ASSIGN_OR_RETURN(MappedMemory memory, MappedMemory::Create(buffer_bytes * most));
  ExpertPool pool(std::move(memory), buffer_bytes);
  pool.limit_ = limit;
  pool.fresh_.reserve(most);
  for (int32_t buffer = most - 1; buffer >= 0; --buffer) pool.fresh_.push_back(buffer);
  return pool;
}

int32_t ExpertPool::Take() {
  if (in_use_ >= limit_) return -1;
  std::vector<int32_t>& from = touched_.empty() ? fresh_ : touched_;
  CHECK(!from.empty());
  const int32_t buffer = from.back();
  from.pop_back();
  ++in_use_;
  return buffer;
}

void ExpertPool::GiveBack(int32_t buffer) {
  CHECK(in_use_ > 0);
  --in_use_;
  touched_.push_back(buffer);
  SetLimit(limit_);
}

void ExpertPool::SetLimit(int32_t limit) {
  CHECK(limit > 0);
  limit_ = limit;
  while (!touched_.empty() && in_use_ + static_cast<int32_t>(touched_.size()) > limit_) {
    memory_.Release(data(touched_.back()), buffer_bytes_);
    fresh_.push_back(touched_.back());
    touched_.pop_back();
  }
}

}  // namespace tidepool::moe
