#include "moe/device/device_experts.h"

#include <string>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "moe/offload_change.h"

namespace tidepool::moe {

absl::StatusOr<std::unique_ptr<DeviceExperts>> DeviceExperts::Create(
    kernels::KernelBackend* backend, std::unique_ptr<TieredExperts> host, DeviceOptions options) {
  const ExpertRecords& records = host->records();
  ASSIGN_OR_RETURN(TierSlots slots,
                   TierSlots::Create(records, {.top_k = options.top_k,
                                               .slots = options.slots,
                                               .staging = options.staging,
                                               .policy = std::move(options.policy),
                                               .layer_numbers = options.layer_numbers}));
  ASSIGN_OR_RETURN(
      DevicePool pool,
      DevicePool::Create({.buffer_bytes = records.largest_bytes(),
                          .limit = static_cast<int32_t>(options.slots) + options.staging,
                          .chunk_bytes = options.chunk_bytes},
                         backend->memory()));
  return std::unique_ptr<DeviceExperts>(
      new DeviceExperts(backend, std::move(host), options, std::move(pool), std::move(slots)));
}

DeviceExperts::DeviceExperts(kernels::KernelBackend* backend, std::unique_ptr<TieredExperts> host,
                             const DeviceOptions& options, DevicePool pool, TierSlots slots)
    : backend_(backend),
      host_(std::move(host)),
      slots_(std::move(slots)),
      fetcher_({.backend = backend, .host = host_.get(), .placement = &slots_.placement()},
               std::move(pool),
               // Half of the staging buffers. The other half is for experts that are not kept.
               {.ahead_buffers = options.staging / 2,
                .prefetch = options.prefetch,
                .layer_numbers = options.layer_numbers,
                .clock = options.clock}) {}

absl::Status DeviceExperts::LoadResidents(const std::function<void(double fraction)>& progress) {
  host_->LoadResidents(progress);
  return fetcher_.LoadResidents();
}

// With HostLane::kOn, hits are given out before the placement decides, so that the device computes
// them meanwhile. With HostLane::kOff, the caller needs to know early which experts leave (see
// BoundedMoeLayer). The layer then has many rows, so the time of a decision does not matter.
void DeviceExperts::Request(const LayerRouting& routing, absl::Span<const int32_t> experts) {
  fetcher_.Begin(routing, experts);
  if (routing.host_lane == HostLane::kOff) Decide();
}

absl::StatusOr<std::vector<ReadyExpert>> DeviceExperts::NextReady(Patience patience) {
  std::vector<ReadyExpert> hits = fetcher_.TakeHits();
  if (!hits.empty()) return hits;
  if (!fetcher_.request().has_lookups()) Decide();
  return fetcher_.NextReady(patience);
}

void DeviceExperts::Decide() {
  const LayerRouting& routing = fetcher_.request().routing();
  const absl::Span<const Lookup> lookups = slots_.Decide(routing);
  DeviceBuffers& buffers = fetcher_.buffers();
  for (const Lookup& lookup : lookups) {
    if (lookup.action != LookupAction::kInsert) continue;
    if (lookup.victim.valid()) buffers.Drop(IndexOf(lookup.victim), Holder::kPlacement);
    buffers.Hold(IndexOf({routing.layer, lookup.expert}), Holder::kPlacement);
  }
  fetcher_.RequestMissing(lookups);
}

OffloadSettings DeviceExperts::Settings() const {
  return slots_.Settings(PoolUse::Of(pool()), fetcher_.ahead().prefetch());
}

absl::Status DeviceExperts::Change(const OffloadChange& change) {
  CHECK(fetcher_.request().done()) << "experts are in use";
  ASSIGN_OR_RETURN(const int64_t slots,
                   slots_.SlotsAfterChange(change, pool().limit(), host_->records()));
  ASSIGN_OR_RETURN(PolicyOptions policy, slots_.PolicyAfterChange(change));
  if (slots != placement().shape().slots) RETURN_IF_ERROR(Resize(slots));
  Evict(slots_.SetPolicy(change, std::move(policy)));
  if (change.prefetch.has_value()) {
    fetcher_.ahead().set_prefetch(*change.prefetch);
    CHECK_OK(host_->Change({.prefetch = change.prefetch}));
  }
  return absl::OkStatus();
}

absl::Status DeviceExperts::Resize(int64_t slots) {
  const auto limit = static_cast<int32_t>(slots + slots_.options().staging);
  if (limit > pool().limit()) {
    RETURN_IF_ERROR(fetcher_.buffers().SetLimit(limit, backend_));
  } else {
    RETURN_IF_ERROR(fetcher_.AwaitCopies());
  }
  ASSIGN_OR_RETURN(const std::vector<ExpertRef> evicted, slots_.placement().Resize(slots));
  Evict(evicted);
  return fetcher_.buffers().SetLimit(limit, backend_);
}

void DeviceExperts::Evict(const std::vector<ExpertRef>& experts) {
  for (const ExpertRef ref : experts) fetcher_.buffers().Drop(IndexOf(ref), Holder::kPlacement);
}

void DeviceExperts::RefreshSoon() {
  slots_.placement().RefreshSoon();
  host_->RefreshSoon();
}

ExpertMap DeviceExperts::Map() const {
  const DeviceBuffers& buffers = fetcher_.buffers();
  return slots_.Map([&](int64_t expert) {
    return buffers.IsHeld(expert, Holder::kPlacement) && !buffers.IsAbsent(expert);
  });
}

std::optional<OffloadStats> DeviceExperts::Stats() const {
  OffloadStats stats = *host_->Stats();
  const LaneCounters lanes = fetcher_.counters();
  stats.host = {.slots = stats.slots,
                .staging = stats.staging,
                .resident_bytes = stats.resident_bytes,
                .capacity_bytes = stats.capacity_bytes,
                .placement = stats.placement,
                .copied = lanes.copied,
                .computed_on_cpu = lanes.computed_on_cpu,
                .copied_for_later = lanes.copied_for_later,
                .copied_ahead = lanes.copied_ahead,
                .copied_bytes = lanes.copies.bytes,
                .copy_time = lanes.copies.time,
                .copy_wait_time = lanes.copies.wait_time,
                .cpu_time = lanes.cpu_time,
                .copy_bytes_per_s = fetcher_.costs().CopyBytesPerSecond(),
                .cpu_bytes_per_s = fetcher_.costs().HostBytesPerSecond()};
  slots_.Describe(PoolUse::Of(pool()), fetcher_.ahead().prefetch(), &stats);
  return stats;
}

}  // namespace tidepool::moe
