#include "moe/expert_pool.h"

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "moe/expert_record.h"

namespace tidepool::moe {

absl::StatusOr<ExpertPool> ExpertPool::Create(int64_t buffer_bytes, int32_t limit, int32_t most) {
  CHECK(buffer_bytes > 0 && buffer_bytes % kRecordAlignment == 0) << buffer_bytes;
  CHECK(limit > 0 && limit <= most) << limit << " of " << most;
  ASSIGN_OR_RETURN(MappedMemory memory, MappedMemory::Reserve(buffer_bytes * most));
  RETURN_IF_ERROR(memory.Commit(memory.data(), buffer_bytes * limit));
  ExpertPool pool(std::move(memory), buffer_bytes);
  pool.limit_ = limit;
  for (int32_t buffer = most - 1; buffer >= limit; --buffer) pool.reserved_.push_back(buffer);
  for (int32_t buffer = limit - 1; buffer >= 0; --buffer) pool.fresh_.push_back(buffer);
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
  Trim();
}

absl::Status ExpertPool::SetLimit(int32_t limit) {
  CHECK(limit > 0);
  absl::Status status;
  while (status.ok() && committed() < limit) {
    CHECK(!reserved_.empty());
    status = memory_.Commit(data(reserved_.back()), buffer_bytes_);
    if (!status.ok()) break;
    fresh_.push_back(reserved_.back());
    reserved_.pop_back();
  }
  if (status.ok()) limit_ = limit;
  Trim();
  return status;
}

// Frees the memory of unused buffers until at most limit_ buffers have memory.
void ExpertPool::Trim() {
  while (committed() > limit_ && committed() > in_use_) {
    std::vector<int32_t>& from = fresh_.empty() ? touched_ : fresh_;
    memory_.Release(data(from.back()), buffer_bytes_);
    reserved_.push_back(from.back());
    from.pop_back();
  }
}

}  // namespace tidepool::moe
