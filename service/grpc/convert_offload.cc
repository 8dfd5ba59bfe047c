// Converts the settings and statistics of expert offloading between wire types and the engine's
// types.
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "service/grpc/convert.h"

namespace tidepool::service {
namespace {

void ToProto(const moe::HostTierStats& stats, v1::HostTierCounters* out) {
  out->set_hits(stats.placement.hits);
  out->set_misses(stats.placement.misses());
  out->set_promotions(stats.placement.promotions);
  out->set_pass_throughs(stats.placement.pass_throughs);
  out->set_copied(stats.copied);
  out->set_computed_on_cpu(stats.computed_on_cpu);
  out->set_copied_for_later(stats.copied_for_later);
  out->set_copied_ahead(stats.copied_ahead);
  out->set_copied_bytes(stats.copied_bytes);
  out->set_copy_seconds(absl::ToDoubleSeconds(stats.copy_time));
  out->set_copy_wait_seconds(absl::ToDoubleSeconds(stats.copy_wait_time));
  out->set_cpu_seconds(absl::ToDoubleSeconds(stats.cpu_time));
}

void ToProto(const moe::HostTierStats& stats, v1::HostTierStats* out) {
  out->set_slots(stats.slots);
  out->set_staging_records(stats.staging);
  out->set_resident_bytes(stats.resident_bytes);
  out->set_capacity_bytes(stats.capacity_bytes);
  out->set_copy_bytes_per_second(stats.copy_bytes_per_s);
  out->set_cpu_bytes_per_second(stats.cpu_bytes_per_s);
}

}  // namespace

void ToProto(const moe::OffloadStats& stats, v1::OffloadCounters* out) {
  out->set_hits(stats.placement.hits);
  out->set_misses(stats.placement.misses());
  out->set_promotions(stats.placement.promotions);
  out->set_pass_throughs(stats.placement.pass_throughs);
  out->set_demand_bytes(stats.demand_bytes);
  out->set_prefetch_bytes(stats.prefetch_bytes);
  out->set_prefetch_used_bytes(stats.prefetch_used_bytes);
  out->set_prefetch_wasted_bytes(stats.prefetch_wasted_bytes);
  out->set_failed_reads(stats.failed_reads);
  out->set_rebuilt_records(stats.rebuilt_records);
  out->set_failed_record_writes(stats.failed_record_writes);
  out->set_stall_seconds(absl::ToDoubleSeconds(stats.stall_time));
  out->set_hidden_seconds(absl::ToDoubleSeconds(stats.hidden_time));
  if (stats.host.has_value()) ToProto(*stats.host, out->mutable_host());
  for (const auto& [number, counters] : stats.layers) {
    v1::LayerCounters* layer = out->add_layers();
    layer->set_layer(number);
    layer->set_hits(counters.hits);
    layer->set_misses(counters.misses());
    layer->set_promotions(counters.promotions);
    layer->set_pass_throughs(counters.pass_throughs);
    layer->set_evictions(counters.evictions);
  }
}

void ToProto(const engine::EngineStats& stats, v1::OffloadStats* out) {
  CHECK(stats.offload.has_value());
  const moe::OffloadStats& offload = *stats.offload;
  out->set_policy(offload.policy);
  out->set_refresh_interval(offload.refresh_interval);
  out->set_prefetch(offload.prefetch == moe::Prefetch::kOn);
  out->set_reader(offload.reader);
  out->set_slots(offload.slots);
  out->set_experts(offload.experts);
  out->set_staging_records(offload.staging);
  out->set_record_bytes(offload.record_bytes);
  out->set_resident_bytes(offload.resident_bytes);
  out->set_capacity_bytes(offload.capacity_bytes);
  out->set_lost_records(offload.lost_records);
  if (offload.host.has_value()) ToProto(*offload.host, out->mutable_host());
  ToProto(offload, out->mutable_total());
  ToProto(stats.offload_recent, out->mutable_window());
  out->set_window_seconds(absl::ToDoubleSeconds(stats.offload_window));
}

absl::StatusOr<moe::OffloadChange> FromProto(const v1::SetOffloadRequest& request) {
  moe::OffloadChange change;
  if (request.has_policy()) {
    const absl::StatusOr<moe::PolicyKind> policy = moe::ParsePolicyKind(request.policy());
    if (!policy.ok()) {
      return absl::Status(policy.status().code(),
                          absl::StrCat("policy: ", policy.status().message()));
    }
    change.policy = *policy;
  }
  if (request.has_refresh_interval()) change.refresh_interval = request.refresh_interval();
  if (request.has_expert_memory_bytes()) {
    change.expert_memory_bytes = request.expert_memory_bytes();
  }
  if (request.has_expert_memory_share()) {
    change.expert_memory_share = request.expert_memory_share();
  }
  if (request.has_prefetch()) {
    change.prefetch = request.prefetch() ? moe::Prefetch::kOn : moe::Prefetch::kOff;
  }
  return change;
}

void ToProto(const moe::OffloadSettings& settings, v1::OffloadSettings* out) {
  out->set_policy(std::string(moe::PolicyName(settings.policy)));
  out->set_refresh_interval(settings.refresh_interval);
  out->set_expert_memory_bytes(settings.expert_memory_bytes);
  out->set_prefetch(settings.prefetch == moe::Prefetch::kOn);
  out->set_slots(settings.slots);
  out->set_experts(settings.experts);
  out->set_staging_records(settings.staging);
  out->set_record_bytes(settings.record_bytes);
}

void ToProto(const engine::ExpertPlacement& placement, v1::WorkerPlacement* out) {
  const moe::ExpertMap& map = placement.map;
  size_t at = 0;
  for (const int number : map.layer_numbers) {
    v1::LayerPlacement* layer = out->add_layers();
    layer->set_layer(number);
    for (int expert = 0; expert < map.experts; ++expert, ++at) {
      if (map.resident[at]) layer->add_resident_experts(expert);
      layer->add_uses_total(map.uses[at]);
      layer->add_uses_window(placement.recent_uses[at]);
    }
  }
  out->set_window_seconds(absl::ToDoubleSeconds(placement.window));
}

}  // namespace tidepool::service
