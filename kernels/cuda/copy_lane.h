// CopyLane: copies pinned host memory into the device's memory, in parallel with the ops
// (KernelBackend::BeginCopyIn).
#ifndef TIDEPOOL_KERNELS_CUDA_COPY_LANE_H_
#define TIDEPOOL_KERNELS_CUDA_COPY_LANE_H_

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cuda/runtime.h"

namespace tidepool::kernels::cuda {

// Thread-compatible. Copies run one after the other on a stream of their own.
class CopyLane {
 public:
  // `ops` is the stream of the ops, which must outlive the lane.
  static absl::StatusOr<std::unique_ptr<CopyLane>> Create(int device, Stream* ops);
  ~CopyLane();
  CopyLane(const CopyLane&) = delete;
  CopyLane& operator=(const CopyLane&) = delete;

  // See KernelBackend. Await does nothing if Time has returned a time.
  OpMark MarkOps();
  CopyTicket Begin(absl::Span<const std::byte> from, std::byte* to, OpMark after);
  void Await(CopyTicket copy);
  absl::StatusOr<std::optional<absl::Duration>> Time(CopyTicket copy);

  // The first error of the copies, if one is known.
  absl::Status status() const;

 private:
  struct Copy {
    Event* begin = nullptr;
    Event* end = nullptr;
  };

  CopyLane(int device, Stream* ops, Stream* stream) : device_(device), ops_(ops), stream_(stream) {}
  // Returns a timed event, or null if the device has failed.
  Event* TakeEvent();

  int device_;
  Stream* ops_;
  Stream* stream_;
  // Mark m is at event m % kMarks. If the event was recorded again since, a copy also waits for the
  // ops before that later mark, which is allowed.
  static constexpr OpMark kMarks = 8;
  Event* marks_[kMarks] = {};
  OpMark last_mark_ = 0;
  OpMark awaited_mark_ = 0;  // the copy stream waits for the ops before this mark
  CopyTicket begun_ = 0;
  std::map<CopyTicket, Copy> copies_;  // copies whose time was not returned yet
  std::vector<Event*> free_events_;    // timed events that can be used again
  absl::Status event_error_;           // set if an event could not be made
};

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_KERNELS_CUDA_COPY_LANE_H_
