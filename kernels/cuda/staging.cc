#include "kernels/cuda/staging.h"

#include <algorithm>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "kernels/base/check.h"

namespace tidepool::kernels::cuda {
namespace {

constexpr size_t kCarryAlignment = 16;

}  // namespace

absl::StatusOr<std::unique_ptr<StagingRing>> StagingRing::Create(int device, Stream* stream) {
  auto ring = absl::WrapUnique(new StagingRing(device, stream));
  ring->host_ = AllocatePinned(device, kSegments * kOpBytes);
  ring->on_device_ = AllocateDevice(device, kSegments * kOpBytes);
  for (Event*& event : ring->left_) event = MakeEvent(device, EventKind::kUntimed);
  const bool events = std::all_of(ring->left_, ring->left_ + kSegments,
                                  [](const Event* event) { return event != nullptr; });
  if (ring->host_ == nullptr || ring->on_device_ == nullptr || !events) {
    return absl::ResourceExhaustedError(
        "no pinned memory or no device memory for the arguments of kernels (16 MiB each)");
  }
  return ring;
}

StagingRing::~StagingRing() {
  // Copies may still read the ring.
  (void)Synchronize(stream_);
  for (Event* event : left_) {
    if (event != nullptr) DeleteEvent(event);
  }
  if (host_ != nullptr) FreePinned(device_, host_);
  if (on_device_ != nullptr) FreeDevice(device_, on_device_);
}

void StagingRing::EnterNextSegment() {
  Record(stream_, left_[segment_]);
  segment_ = (segment_ + 1) % kSegments;
  used_ = 0;
  Wait(stream_, left_[(segment_ + 1) % kSegments]);
}

const std::byte* StagingRing::CarryBytes(absl::Span<const std::byte> bytes) {
  CHECK_LE(bytes.size(), kOpBytes);
  if (bytes.size() > kOpBytes - used_) EnterNextSegment();
  const size_t at = segment_ * kOpBytes + used_;
  std::copy(bytes.begin(), bytes.end(), host_ + at);
  if (!bytes.empty()) CopyPinnedIn(stream_, host_ + at, on_device_ + at, bytes.size());
  used_ += (bytes.size() + kCarryAlignment - 1) / kCarryAlignment * kCarryAlignment;
  return on_device_ + at;
}

}  // namespace tidepool::kernels::cuda
