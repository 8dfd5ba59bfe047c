// DeviceFetcher: brings the experts that a layer requests to the device, or gives them to the CPU.
//
//   fetcher.Begin(routing, experts);
//   std::vector<ReadyExpert> hits = fetcher.TakeHits();  // may be computed already
//   fetcher.RequestMissing(lookups);  // after the placement has decided
//   while (...) {
//     ASSIGN_OR_RETURN(auto wave, fetcher.NextReady(Patience::kUntilOne));
//     ... fetcher.Release(expert);
//   }
//
// It does for a device what ExpertFetcher does for the host's memory.
#ifndef TIDEPOOL_MOE_DEVICE_DEVICE_FETCHER_H_
#define TIDEPOOL_MOE_DEVICE_DEVICE_FETCHER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/base/clock.h"
#include "moe/device/copy_ahead.h"
#include "moe/device/copy_lane.h"
#include "moe/device/device_buffers.h"
#include "moe/device/device_pool.h"
#include "moe/device/device_request.h"
#include "moe/device/lane_costs.h"
#include "moe/expert_source.h"
#include "moe/offload_control.h"
#include "moe/policy/placement.h"
#include "moe/tiered_experts.h"

namespace tidepool::moe {

struct DeviceFetchOptions {
  int ahead_buffers = 0;  // maximum number of buffers for experts that were copied ahead
  Prefetch prefetch = Prefetch::kOn;
  std::vector<int> layer_numbers;  // the model's layer number of each MoE layer, for error messages
  const base::Clock* clock = &base::Clock::Real();
};

// Totals since the start. Each miss is counted once.
struct LaneCounters {
  int64_t copied = 0;            // misses that were copied and computed by the device
  int64_t computed_on_cpu = 0;   // misses that the CPU computed
  int64_t copied_for_later = 0;  // part of computed_on_cpu
  int64_t copied_ahead = 0;      // misses that had been copied ahead
  absl::Duration cpu_time;       // total time that the CPU computed experts
  CopyCounters copies;
};

// Engine thread only. Large because it has the functions of an ExpertSource.
class DeviceFetcher {
 public:
  // The parts that a DeviceFetcher uses. They must outlive it.
  struct Parts {
    kernels::KernelBackend* backend = nullptr;
    TieredExperts* host = nullptr;
    Placement* placement = nullptr;
  };
  DeviceFetcher(const Parts& parts, DevicePool pool, const DeviceFetchOptions& options);
  // Waits for the copies.
  ~DeviceFetcher();

  // Copies the placement's residents that are in the host's memory. The others lose their slots.
  // Returns the error of a copy. Requires: Begin was not called yet.
  absl::Status LoadResidents();

  // Begins the request of a layer, like ExpertSource::Request.
  void Begin(const LayerRouting& routing, absl::Span<const int32_t> experts);
  // Gives out the residents that ops may use now. Returns nothing after RequestMissing.
  std::vector<ReadyExpert> TakeHits();
  // Requests the experts that are not on the device from the host tier. `lookups` is the decision
  // of the placement, whose holders the caller has changed. Must be called once before NextReady.
  void RequestMissing(absl::Span<const Lookup> lookups);
  // Implementations of the ExpertSource functions with these names.
  absl::StatusOr<std::vector<ReadyExpert>> NextReady(Patience patience);
  void Release(int32_t expert);
  void Postpone(int32_t expert);
  void PrefetchHint(int layer, absl::Span<const int32_t> experts);
  void NoteHostWork(const HostWork& work);

  // Waits until all copies have ended. Returns the first error.
  absl::Status AwaitCopies();

  const DeviceRequest& request() const { return request_; }
  DeviceBuffers& buffers() { return buffers_; }
  const DeviceBuffers& buffers() const { return buffers_; }
  CopyAhead& ahead() { return ahead_; }
  const CopyAhead& ahead() const { return ahead_; }
  LaneCounters counters() const;
  const LaneCosts& costs() const { return costs_; }

 private:
  struct Hint {
    int layer = -1;
    std::vector<int32_t> experts;
  };

  ExpertRef RefOf(int64_t expert) const { return placement_.residency().At(expert); }
  // Returns whether an expert of the request was given out, even if it was released since.
  bool WasGivenOut(int64_t expert) const {
    return request_.of(expert).is_given_out || !buffers_.IsHeld(expert, Holder::kRequest);
  }
  absl::Status TakeFromHost(Patience patience);
  void Divide(absl::Span<const ReadyExpert> wave);
  void GiveToCpu(const ReadyExpert& ready);
  void BeginCopies();
  bool BeginCopy(const WaitingCopy& copy);
  std::vector<ReadyExpert> GiveOut();
  ReadyExpert GiveOutOnDevice(int64_t expert);
  absl::StatusOr<bool> AwaitMore();
  void Evict(int64_t expert);
  double SecondsAhead() const;
  void CancelLaterCopies();
  void EndCopies(absl::Span<const CopyLane::Ended> ended);
  void FailCopy(const CopyLane::Ended& ended);
  absl::Status Abandon(const absl::Status& error);
  void UseHint();

  const DeviceFetchOptions options_;
  TieredExperts& host_;
  Placement& placement_;
  DeviceRequest request_;
  DeviceBuffers buffers_;
  LaneCosts costs_;
  CopyLane copies_;
  CopyAhead ahead_;
  kernels::OpMark settled_after_ = 0;  // ops that used settled buffers are before this mark
  std::vector<int32_t> missing_;       // the experts of the host tier's request
  std::vector<WaitingCopy> later_;     // copies that no layer waits for, and that need a buffer
  Hint hint_;                          // not used yet; layer -1: there is none
  // error of a copy; the current or the next request fails with it
  absl::Status copy_error_;
  LaneCounters counters_;  // only the counters that no other member counts
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_DEVICE_DEVICE_FETCHER_H_
