// CopyLane: the copies of experts to a device that are in flight.
//
//   const CopyTicket copy = lane.Begin(
//       {.expert = 7, .from = record, .to = buffer, .after = lane.MarkOps()});
//   lane.Await(copy);  // ops that are called from now on may use the buffer
//   for (const CopyLane::Ended& ended : lane.Poll()) ...
#ifndef TIDEPOOL_MOE_DEVICE_COPY_LANE_H_
#define TIDEPOOL_MOE_DEVICE_COPY_LANE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/base/clock.h"
#include "moe/device/lane_costs.h"

namespace tidepool::moe {

struct ExpertCopy {
  int64_t expert = 0;
  absl::Span<const std::byte> from;  // must not change until Poll has returned the copy
  std::byte* to = nullptr;           // in the device's memory
  kernels::OpMark after;             // ops that used `to` are before this mark
};

// Totals since the start.
struct CopyCounters {
  int64_t bytes = 0;         // bytes of the copies that have ended
  absl::Duration time;       // sum of their times
  absl::Duration wait_time;  // total time in AwaitAll
};

// Engine thread only.
class CopyLane {
 public:
  struct Ended {
    int64_t expert = 0;
    kernels::CopyTicket copy = 0;
    absl::Status status;
  };

  // The arguments must outlive this object. Tells `costs` how long copies take.
  CopyLane(kernels::KernelBackend* backend, LaneCosts* costs, const base::Clock* clock)
      : backend_(backend), costs_(costs), clock_(clock) {}

  // See KernelBackend.
  kernels::OpMark MarkOps() { return backend_->MarkOps(); }
  kernels::CopyTicket Begin(const ExpertCopy& copy);
  // Ops that are called after this run after the copy. Does not block the host.
  void Await(kernels::CopyTicket copy);
  // Returns copies that have ended since the last call. Does not wait. Copies are returned in the
  // order in which they began, so one that has ended may be returned later.
  std::vector<Ended> Poll();
  // Waits until all copies have ended, and returns them.
  std::vector<Ended> AwaitAll();

  bool idle() const { return in_flight_.empty(); }
  // Returns the estimated time until all copies that have begun have ended.
  double SecondsAhead() const;
  const CopyCounters& counters() const { return counters_; }

 private:
  struct Copy {
    kernels::CopyTicket ticket = 0;
    ExpertCopy copy;
  };

  kernels::KernelBackend* const backend_;
  LaneCosts* const costs_;
  const base::Clock* const clock_;
  std::deque<Copy> in_flight_;  // in ascending order of tickets
  absl::Duration free_at_;      // when all copies are expected to have ended
  CopyCounters counters_;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_DEVICE_COPY_LANE_H_
