#include "moe/expert_pool.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "moe/expert_record.h"

namespace tidepool::moe {

absl::StatusOr<PinnedRange> PinnedRange::Create(absl::Span<std::byte> memory,
                                                kernels::KernelBackend* backend) {
  RETURN_IF_ERROR(backend->PinHost(memory));
  PinnedRange range;
  range.memory_ = memory;
  range.backend_ = backend;
  return range;
}

PinnedRange::PinnedRange(PinnedRange&& other) noexcept
    : memory_(std::exchange(other.memory_, {})), backend_(std::exchange(other.backend_, nullptr)) {}

PinnedRange& PinnedRange::operator=(PinnedRange&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(backend_, other.backend_);
  return *this;
}

PinnedRange::~PinnedRange() {
  if (backend_ != nullptr) backend_->UnpinHost(memory_);
}

absl::StatusOr<ExpertPool> ExpertPool::Create(int64_t buffer_bytes, int32_t limit, int32_t most,
                                              kernels::KernelBackend* pin_for) {
  CHECK(buffer_bytes > 0 && buffer_bytes % kRecordAlignment == 0) << buffer_bytes;
  if (pin_for != nullptr) buffer_bytes = WholePages(buffer_bytes);
  CHECK(limit > 0 && limit <= most) << limit << " of " << most;
  ASSIGN_OR_RETURN(MappedMemory memory, MappedMemory::Reserve(buffer_bytes * most));
  RETURN_IF_ERROR(memory.Commit(memory.data(), buffer_bytes * limit));
  ExpertPool pool(std::move(memory), buffer_bytes, pin_for);
  pool.limit_ = limit;
  if (pin_for != nullptr) pool.pins_.resize(most);
  for (int32_t buffer = 0; buffer < limit; ++buffer) RETURN_IF_ERROR(pool.Pin(buffer));
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
    const int32_t buffer = reserved_.back();
    status = memory_.Commit(data(buffer), buffer_bytes_);
    if (!status.ok()) break;
    status = Pin(buffer);
    fresh_.push_back(buffer);
    reserved_.pop_back();
  }
  if (status.ok()) limit_ = limit;
  Trim();
  return status;
}

absl::Status ExpertPool::Pin(int32_t buffer) {
  if (pin_for_ == nullptr) return absl::OkStatus();
  absl::StatusOr<PinnedRange> range =
      PinnedRange::Create({data(buffer), static_cast<size_t>(buffer_bytes_)}, pin_for_);
  if (!range.ok()) {
    int64_t pinned = 0;
    for (const PinnedRange& pin : pins_) pinned += pin.bytes();
    return absl::Status(
        range.status().code(),
        absl::StrCat("the memory for experts needs more pinned host memory than the ", pinned,
                     " bytes that are pinned now: ", range.status().message()));
  }
  pins_[buffer] = *std::move(range);
  return absl::OkStatus();
}

// Frees the memory of unused buffers until at most limit_ buffers have memory.
void ExpertPool::Trim() {
  while (committed() > limit_ && committed() > in_use_) {
    std::vector<int32_t>& from = fresh_.empty() ? touched_ : fresh_;
    if (pin_for_ != nullptr) pins_[from.back()] = PinnedRange();
    memory_.Release(data(from.back()), buffer_bytes_);
    reserved_.push_back(from.back());
    from.pop_back();
  }
}

}  // namespace tidepool::moe
