#include "moe/expert_prefetcher.h"

#include <algorithm>

namespace tidepool::moe {

ExpertPrefetcher::ExpertPrefetcher(ExpertBuffers* buffers, ReadQueue* reads, const Options& options)
    : buffers_(buffers),
      reads_(reads),
      limit_(static_cast<size_t>(options.limit)),
      prefetch_(options.prefetch),
      waste_(buffers->pool().buffer_bytes()) {}

bool ExpertPrefetcher::WantsHints() const {
  if (prefetch_ == Prefetch::kOff) return false;
  // If every expert has a buffer, all are in memory already.
  if (buffers_->pool().in_use() >= buffers_->experts()) return false;
  return !waste_.IsTooMuch();
}

void ExpertPrefetcher::Hint(absl::Span<const int64_t> experts) {
  if (!WantsHints()) return;
  for (const int64_t expert : experts) {
    if (!buffers_->IsAbsent(expert)) continue;
    if (ahead_.size() >= limit_) return;
    const int32_t buffer = buffers_->Take();
    if (buffer < 0) return;
    buffers_->Hold(expert, Holder::kPrefetch);
    ahead_.push_back(expert);
    counters_.bytes += buffers_->RecordBytes(expert);
    reads_->Begin(buffers_->BeginRead(expert, buffer), ReadPriority::kSpeculative);
  }
}

void ExpertPrefetcher::UseIfHinted(int64_t expert) {
  if (!buffers_->IsHeld(expert, Holder::kPrefetch)) return;
  counters_.used_bytes += buffers_->RecordBytes(expert);
  waste_.AddUsed(buffers_->RecordBytes(expert));
  Forget(expert);
}

void ExpertPrefetcher::Withdraw() {
  if (ahead_.empty()) return;
  for (const RecordRead& read : reads_->Withdraw()) {
    counters_.bytes -= read.bytes;
    buffers_->Vacate(read.ticket);
    Forget(read.ticket);
  }
}

void ExpertPrefetcher::DropRange(int64_t begin, int64_t end) {
  for (size_t i = ahead_.size(); i-- > 0;) {
    if (begin <= ahead_[i] && ahead_[i] < end) DropIfHinted(ahead_[i]);
  }
}

bool ExpertPrefetcher::DropOldest() {
  const auto oldest = std::find_if(ahead_.begin(), ahead_.end(),
                                   [this](int64_t expert) { return buffers_->IsReady(expert); });
  if (oldest == ahead_.end()) return false;
  DropIfHinted(*oldest);
  return true;
}

void ExpertPrefetcher::DropIfHinted(int64_t expert) {
  if (!buffers_->IsHeld(expert, Holder::kPrefetch)) return;
  counters_.wasted_bytes += buffers_->RecordBytes(expert);
  waste_.AddWasted(buffers_->RecordBytes(expert));
  Forget(expert);
}

void ExpertPrefetcher::Forget(int64_t expert) {
  ahead_.erase(std::find(ahead_.begin(), ahead_.end(), expert));
  buffers_->Drop(expert, Holder::kPrefetch);
}

}  // namespace tidepool::moe
