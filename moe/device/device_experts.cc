#include "moe/device/device_experts.h"

#include <string>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "moe/offload_change.h"

namespace tidepool::moe {

absl::StatusOr<std::unique_ptr<DeviceExperts>> DeviceExperts::Create(
    kernels::KernelBackend* backend, std::unique_ptr<TieredExperts> host, DeviceOptions options) {
  CHECK(options.staging > 0);
  const ExpertRecords& records = host->records();
  const PoolShape shape = {.layers = static_cast<int>(records.layers.size()),
                           .experts = static_cast<int>(records.layers.front().size()),
                           .top_k = options.top_k,
                           .slots = options.slots,
                           .miss_cost = MissCosts(records.layer_bytes())};
  ASSIGN_OR_RETURN(std::unique_ptr<Placement> placement, Placement::Create(shape, options.policy));
  ASSIGN_OR_RETURN(
      DevicePool pool,
      DevicePool::Create({.buffer_bytes = records.largest_bytes(),
                          .limit = static_cast<int32_t>(options.slots) + options.staging,
                          .chunk_bytes = options.chunk_bytes},
                         backend->memory()));
  return std::unique_ptr<DeviceExperts>(new DeviceExperts(
      backend, std::move(host), std::move(options), std::move(pool), std::move(placement)));
}

DeviceExperts::DeviceExperts(kernels::KernelBackend* backend, std::unique_ptr<TieredExperts> host,
                             DeviceOptions options, DevicePool pool,
                             std::unique_ptr<Placement> placement)
    : backend_(backend),
      options_(std::move(options)),
      host_(std::move(host)),
      placement_(std::move(placement)),
      uses_(placement_->shape().all_experts(), 0),
      fetcher_({.backend = backend, .host = host_.get(), .placement = placement_.get()},
               std::move(pool),
               // Half of the staging buffers. The other half is for experts that are not kept.
               {.ahead_buffers = options_.staging / 2,
                .prefetch = options_.prefetch,
                .layer_numbers = options_.layer_numbers,
                .clock = options_.clock}) {}

absl::Status DeviceExperts::LoadResidents(const std::function<void(double fraction)>& progress) {
  host_->LoadResidents(progress);
  return fetcher_.LoadResidents();
}

// With HostLane::kOn, hits are given out before the placement decides, so that the device computes
// them meanwhile. Without it, the caller needs to know early which experts leave (see
// BoundedMoeLayer), and a layer has so many rows that the time of a decision does not matter.
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
  const absl::Span<const Lookup> lookups = placement_->Decide(routing);
  DeviceBuffers& buffers = fetcher_.buffers();
  for (const Lookup& lookup : lookups) {
    const int64_t expert = IndexOf({routing.layer, lookup.expert});
    ++uses_[expert];
    if (lookup.action != LookupAction::kInsert) continue;
    if (lookup.victim.valid()) buffers.Drop(IndexOf(lookup.victim), Holder::kPlacement);
    buffers.Hold(expert, Holder::kPlacement);
  }
  fetcher_.RequestMissing(lookups);
}

OffloadSettings DeviceExperts::Settings() const {
  return {.policy = options_.policy.kind,
          .refresh_interval = options_.policy.refresh_interval,
          .prefetch = fetcher_.ahead().prefetch(),
          .expert_memory_bytes = pool().limit() * pool().buffer_bytes(),
          .slots = placement_->shape().slots,
          .staging = options_.staging,
          .experts = placement_->shape().all_experts(),
          .record_bytes = pool().buffer_bytes()};
}

absl::Status DeviceExperts::Change(const OffloadChange& change) {
  CHECK(fetcher_.request().done()) << "experts are in use";
  const PoolShape& shape = placement_->shape();
  ASSIGN_OR_RETURN(const int64_t slots,
                   SlotsAfter(change, {.slots = shape.slots,
                                       .staging = options_.staging,
                                       .in_use = pool().limit(),
                                       .all_experts = shape.all_experts(),
                                       .top_k = shape.top_k,
                                       .record_bytes = pool().buffer_bytes(),
                                       .expert_bytes = host_->records().total_bytes()}));
  ASSIGN_OR_RETURN(PolicyOptions policy, PolicyAfter(change, options_.policy, uses_));
  if (slots != shape.slots) RETURN_IF_ERROR(Resize(slots));
  if (ReplacesPolicy(change, options_.policy, policy)) {
    const absl::StatusOr<std::vector<ExpertRef>> evicted = placement_->SetPolicy(policy);
    CHECK_OK(evicted.status());  // this cannot fail, because the options were checked
    Evict(*evicted);
  }
  policy.profile = std::move(options_.policy.profile);
  options_.policy = std::move(policy);
  if (change.prefetch.has_value()) {
    fetcher_.ahead().set_prefetch(*change.prefetch);
    CHECK_OK(host_->Change({.prefetch = change.prefetch}));
  }
  return absl::OkStatus();
}

absl::Status DeviceExperts::Resize(int64_t slots) {
  const auto limit = static_cast<int32_t>(slots + options_.staging);
  if (limit > pool().limit()) {
    RETURN_IF_ERROR(fetcher_.buffers().SetLimit(limit, backend_));
  } else {
    RETURN_IF_ERROR(fetcher_.AwaitCopies());
  }
  ASSIGN_OR_RETURN(const std::vector<ExpertRef> evicted, placement_->Resize(slots));
  Evict(evicted);
  return fetcher_.buffers().SetLimit(limit, backend_);
}

void DeviceExperts::Evict(const std::vector<ExpertRef>& experts) {
  for (const ExpertRef ref : experts) fetcher_.buffers().Drop(IndexOf(ref), Holder::kPlacement);
}

void DeviceExperts::RefreshSoon() {
  placement_->RefreshSoon();
  host_->RefreshSoon();
}

ExpertMap DeviceExperts::Map() const {
  ExpertMap map = {.layer_numbers = options_.layer_numbers,
                   .experts = placement_->shape().experts,
                   .resident = std::vector<bool>(uses_.size()),
                   .uses = uses_};
  for (size_t i = 0; i < uses_.size(); ++i) {
    const auto expert = static_cast<int64_t>(i);
    map.resident[i] = fetcher_.buffers().IsHeld(expert, Holder::kPlacement) &&
                      !fetcher_.buffers().IsAbsent(expert);
  }
  return map;
}

std::optional<OffloadStats> DeviceExperts::Stats() const {
  OffloadStats stats = *host_->Stats();
  const LaneCounters lanes = fetcher_.counters();
  const int64_t record = pool().buffer_bytes();
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
  stats.slots = placement_->shape().slots;
  stats.staging = options_.staging;
  stats.capacity_bytes = pool().limit() * record;
  stats.resident_bytes = pool().in_use() * record;
  stats.policy = std::string(placement_->policy_name());
  stats.refresh_interval = options_.policy.refresh_interval;
  stats.prefetch = fetcher_.ahead().prefetch();
  stats.placement = placement_->Total();
  stats.layers.clear();
  for (size_t i = 0; i < options_.layer_numbers.size(); ++i) {
    stats.layers.push_back({options_.layer_numbers[i], placement_->counters()[i]});
  }
  return stats;
}

}  // namespace tidepool::moe
