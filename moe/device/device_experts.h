// DeviceExperts: the ExpertSource of a model whose experts are in three places: some in the memory
// of a device, some in the host's memory, and all in a file. TieredExperts are the two lower tiers.
//
//   ASSIGN_OR_RETURN(auto host, TieredExperts::Create(records, std::move(reader),
//                                                     {..., .pin = backend}));
//   ASSIGN_OR_RETURN(auto experts, DeviceExperts::Create(backend, std::move(host),
//                                                        {.top_k = 8, .slots = 400}));
//   RETURN_IF_ERROR(experts->LoadResidents([](double fraction) {}));
//
// Slots, staging buffers and policies are those of TieredExperts, one tier higher: a Placement
// decides which experts are resident in the device's memory. A layer first gets its experts that
// are on the device. The others are requested from the host tier. When such an expert is in the
// host's memory, LaneCosts decides what is done with it:
//   - It is copied to the device, and given out with Place::kBackend. The device waits for the
//     copy; the host does not.
//   - It is given out with Place::kHost, so that the CPU computes it. If the placement wants to
//   keep
//     it, it is also copied for later layers.
// With HostLane::kOff, all requested experts are copied.
//
// The choice never changes the bits of the results. A copy reads the host's buffer. So the host
// tier keeps the expert until the copy has ended (Holder::kCopy).
#ifndef TIDEPOOL_MOE_DEVICE_DEVICE_EXPERTS_H_
#define TIDEPOOL_MOE_DEVICE_DEVICE_EXPERTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/base/clock.h"
#include "moe/device/device_fetcher.h"
#include "moe/device/device_pool.h"
#include "moe/device/lane_costs.h"
#include "moe/expert_source.h"
#include "moe/offload_control.h"
#include "moe/offload_stats.h"
#include "moe/policy/placement.h"
#include "moe/tier_slots.h"
#include "moe/tiered_experts.h"

namespace tidepool::moe {

struct DeviceOptions {
  int top_k = 0;
  int64_t slots = 0;
  int staging = 8;
  PolicyOptions policy;
  Prefetch prefetch = Prefetch::kOn;
  std::vector<int> layer_numbers;  // the model's layer number of each MoE layer, for error messages
  // The device's memory is allocated in parts of about this size, so that a part can be freed when
  // the number of slots is reduced.
  int64_t chunk_bytes = int64_t{64} << 20;
  const base::Clock* clock = &base::Clock::Real();
};

// Engine thread only.
class DeviceExperts final : public ExpertSource, public OffloadControl {
 public:
  // `host` must be pinned for `backend` (TieredOptions::pin). The backend must outlive this object.
  // Returns INVALID_ARGUMENT if the policy's options are wrong, and RESOURCE_EXHAUSTED if the
  // device does not have enough memory. Requires: at least top_k slots and at most one per expert;
  // at least one staging buffer.
  static absl::StatusOr<std::unique_ptr<DeviceExperts>> Create(kernels::KernelBackend* backend,
                                                               std::unique_ptr<TieredExperts> host,
                                                               DeviceOptions options);
  // Calls TieredExperts::LoadResidents, then copies the experts that the policy wants in the
  // device's memory at the start. An expert that the host does not have is copied when it is first
  // needed. Returns the error of a copy. Requires: Request was not called yet.
  absl::Status LoadResidents(const std::function<void(double fraction)>& progress);

  void Request(const LayerRouting& routing, absl::Span<const int32_t> experts) override;
  absl::StatusOr<std::vector<ReadyExpert>> NextReady(Patience patience) override;
  void Release(int32_t expert) override { fetcher_.Release(expert); }
  void Postpone(int32_t expert) override { fetcher_.Postpone(expert); }
  void PrefetchHint(int moe_layer, absl::Span<const int32_t> experts) override {
    fetcher_.PrefetchHint(moe_layer, experts);
  }
  bool WantsHints() const override { return fetcher_.ahead().WantsHints() || host_->WantsHints(); }
  void NoteHostWork(const HostWork& work) override { fetcher_.NoteHostWork(work); }

  // The members of OffloadStats, OffloadSettings and ExpertMap describe the device's slots, except
  // for those about reads of the file and OffloadStats::host.
  std::optional<OffloadStats> Stats() const override;
  OffloadControl* control() override { return this; }
  OffloadSettings Settings() const override;
  // Changes the device's slots, and the policy of these slots. Prefetch is changed in both tiers.
  // If the number of slots shrinks, waits for the copies in flight; if one fails, returns its
  // error. Returns RESOURCE_EXHAUSTED if the device does not have enough memory for more slots.
  absl::Status Change(const OffloadChange& change) override;
  void RefreshSoon() override;
  ExpertMap Map() const override;

  const TieredExperts& host() const { return *host_; }
  const Placement& placement() const { return slots_.placement(); }
  const LaneCosts& costs() const { return fetcher_.costs(); }

 private:
  DeviceExperts(kernels::KernelBackend* backend, std::unique_ptr<TieredExperts> host,
                const DeviceOptions& options, DevicePool pool, TierSlots slots);

  int64_t IndexOf(ExpertRef expert) const { return placement().residency().IndexOf(expert); }
  const DevicePool& pool() const { return fetcher_.buffers().pool(); }
  void Decide();
  absl::Status Resize(int64_t slots);
  void Evict(const std::vector<ExpertRef>& experts);

  kernels::KernelBackend* const backend_;
  const std::unique_ptr<TieredExperts> host_;
  TierSlots slots_;
  DeviceFetcher fetcher_;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_DEVICE_DEVICE_EXPERTS_H_
