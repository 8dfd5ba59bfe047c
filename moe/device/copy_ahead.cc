#include "moe/device/copy_ahead.h"

#include <algorithm>

namespace tidepool::moe {

CopyAhead::CopyAhead(DeviceBuffers* buffers, const Options& options)
    : buffers_(buffers),
      limit_(static_cast<size_t>(options.limit)),
      prefetch_(options.prefetch),
      waste_(buffers->pool().buffer_bytes()) {}

bool CopyAhead::WantsHints() const {
  if (prefetch_ == Prefetch::kOff || limit_ == 0) return false;
  // If every expert has a buffer, all are on the device already.
  if (buffers_->pool().in_use() >= buffers_->experts()) return false;
  return !waste_.IsTooMuch();
}

void CopyAhead::Add(int64_t expert) {
  buffers_->Hold(expert, Holder::kPrefetch);
  ahead_.push_back(expert);
}

void CopyAhead::UseIfAhead(int64_t expert) {
  if (!buffers_->IsHeld(expert, Holder::kPrefetch)) return;
  ++used_;
  waste_.AddUsed(buffers_->RecordBytes(expert));
  Forget(expert);
}

void CopyAhead::DropRange(int64_t begin, int64_t end) {
  for (size_t i = ahead_.size(); i-- > 0;) {
    if (begin <= ahead_[i] && ahead_[i] < end) DropIfAhead(ahead_[i]);
  }
}

bool CopyAhead::DropOldest() {
  if (ahead_.empty()) return false;
  DropIfAhead(ahead_.front());
  return true;
}

void CopyAhead::DropIfAhead(int64_t expert) {
  if (!buffers_->IsHeld(expert, Holder::kPrefetch)) return;
  waste_.AddWasted(buffers_->RecordBytes(expert));
  Forget(expert);
}

void CopyAhead::Forget(int64_t expert) {
  ahead_.erase(std::find(ahead_.begin(), ahead_.end(), expert));
  buffers_->Drop(expert, Holder::kPrefetch);
}

}  // namespace tidepool::moe
