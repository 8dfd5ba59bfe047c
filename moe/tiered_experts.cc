#include "moe/tiered_experts.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "moe/offload_change.h"

namespace tidepool::moe {

absl::StatusOr<std::unique_ptr<TieredExperts>> TieredExperts::Create(
    ExpertRecords records, std::unique_ptr<RecordReader> reader, TieredOptions options) {
  CHECK(!records.layers.empty() && options.staging > 0);
  const PoolShape shape = {.layers = static_cast<int>(records.layers.size()),
                           .experts = static_cast<int>(records.layers.front().size()),
                           .top_k = options.top_k,
                           .slots = options.slots,
                           .miss_cost = MissCosts(records.layer_bytes())};
  ASSIGN_OR_RETURN(std::unique_ptr<Placement> placement, Placement::Create(shape, options.policy));
  ASSIGN_OR_RETURN(
      ExpertPool pool,
      ExpertPool::Create(records.largest_bytes(),
                         static_cast<int32_t>(options.slots + options.staging),
                         static_cast<int32_t>(shape.all_experts() + options.staging), options.pin));
  return std::unique_ptr<TieredExperts>(new TieredExperts(std::move(records), std::move(reader),
                                                          std::move(options), std::move(pool),
                                                          std::move(placement)));
}

TieredExperts::TieredExperts(ExpertRecords records, std::unique_ptr<RecordReader> reader,
                             TieredOptions options, ExpertPool pool,
                             std::unique_ptr<Placement> placement)
    : records_(std::move(records)),
      options_(std::move(options)),
      placement_(std::move(placement)),
      uses_(placement_->shape().all_experts(), 0),
      reader_(reader->Description()),
      fetcher_({.records = &records_, .placement = placement_.get(), .reader = std::move(reader)},
               std::move(pool),
               // Half of the staging buffers. The other half is for demand reads of experts that
               // are not kept.
               {.prefetch_buffers = options_.staging / 2,
                .prefetch = options_.prefetch,
                .layer_numbers = options_.layer_numbers,
                .read_patience = options_.read_patience,
                .clock = options_.clock,
                .repair = options_.repair}) {}

void TieredExperts::Request(const LayerRouting& routing, absl::Span<const int32_t> experts) {
  fetcher_.Begin(routing.layer, experts);
  // The layer will not run, so no expert should be evicted for it.
  if (fetcher_.request().failed()) return;
  // Decide while the disk reads.
  const absl::Span<const Lookup> lookups = placement_->Decide(routing);
  CHECK_EQ(lookups.size(), experts.size());
  Keep(routing.layer, lookups);
  fetcher_.ReadWaiting();
}

// Carries out a decision: which experts are kept, and which ones are evicted.
void TieredExperts::Keep(int layer, absl::Span<const Lookup> lookups) {
  for (const Lookup& lookup : lookups) {
    const int64_t expert = IndexOf(layer, lookup.expert);
    ++uses_[expert];
    fetcher_.request().SetFound(
        expert, lookup.action == LookupAction::kHit ? Found::kResident : Found::kFetched);
  }
  ExpertBuffers& buffers = fetcher_.buffers();
  for (const Lookup& lookup : lookups) {
    if (lookup.action != LookupAction::kInsert) continue;
    if (lookup.victim.valid()) {
      buffers.Drop(IndexOf(lookup.victim.layer, lookup.victim.expert), Holder::kPlacement);
    }
    buffers.Hold(IndexOf(layer, lookup.expert), Holder::kPlacement);
  }
}

OffloadSettings TieredExperts::Settings() const {
  return {.policy = options_.policy.kind,
          .refresh_interval = options_.policy.refresh_interval,
          .prefetch = fetcher_.prefetcher().prefetch(),
          .expert_memory_bytes = pool().limit() * pool().buffer_bytes(),
          .slots = placement_->shape().slots,
          .staging = options_.staging,
          .experts = placement_->shape().all_experts(),
          .record_bytes = pool().buffer_bytes()};
}

absl::Status TieredExperts::Change(const OffloadChange& change) {
  CHECK(fetcher_.request().done()) << "experts are in use";
  const PoolShape& shape = placement_->shape();
  ASSIGN_OR_RETURN(const int64_t slots,
                   SlotsAfter(change, {.slots = shape.slots,
                                       .staging = options_.staging,
                                       .in_use = pool().in_use(),
                                       .all_experts = shape.all_experts(),
                                       .top_k = shape.top_k,
                                       .record_bytes = pool().buffer_bytes(),
                                       .expert_bytes = records_.total_bytes()}));
  ASSIGN_OR_RETURN(PolicyOptions policy, PolicyAfter(change, options_.policy, uses_));
  if (slots < shape.slots) RETURN_IF_ERROR(AwaitAllReads());
  if (slots != shape.slots) RETURN_IF_ERROR(Resize(slots));
  if (ReplacesPolicy(change, options_.policy, policy)) {
    const absl::StatusOr<std::vector<ExpertRef>> evicted = placement_->SetPolicy(policy);
    CHECK_OK(evicted.status());  // this cannot fail, because the options were checked
    Evict(*evicted);
  }
  policy.profile = std::move(options_.policy.profile);
  options_.policy = std::move(policy);
  fetcher_.prefetcher().set_prefetch(change.prefetch.value_or(fetcher_.prefetcher().prefetch()));
  return absl::OkStatus();
}

// Waits for reads that no layer waits for (from hints and failed requests), because they use memory
// until they end. Stops waiting after shrink_patience, so that a disk that hangs does not block the
// engine.
absl::Status TieredExperts::AwaitAllReads() {
  const int64_t left = fetcher_.AwaitAllReads(options_.shrink_patience);
  if (left == 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("cannot free memory, so nothing was changed: ", records_.path,
                   " has not completed ", left, " reads within ",
                   absl::FormatDuration(options_.shrink_patience), "; check its disk, and retry"));
}

absl::Status TieredExperts::Resize(int64_t slots) {
  const auto limit = static_cast<int32_t>(slots + options_.staging);
  if (limit > pool().limit()) RETURN_IF_ERROR(fetcher_.buffers().SetLimit(limit));
  ASSIGN_OR_RETURN(const std::vector<ExpertRef> evicted, placement_->Resize(slots));
  Evict(evicted);
  CHECK_OK(fetcher_.buffers().SetLimit(limit));
  CHECK_LE(pool().in_use(), limit);
  return absl::OkStatus();
}

void TieredExperts::Evict(const std::vector<ExpertRef>& experts) {
  for (const ExpertRef ref : experts) {
    fetcher_.buffers().Drop(IndexOf(ref.layer, ref.expert), Holder::kPlacement);
  }
}

const std::byte* TieredExperts::BeginCopy(ExpertRef expert) {
  const int64_t index = IndexOf(expert.layer, expert.expert);
  if (!fetcher_.buffers().IsReady(index)) return nullptr;
  return fetcher_.buffers().BeginCopy(index);
}

ExpertMap TieredExperts::Map() const {
  ExpertMap map = {.layer_numbers = options_.layer_numbers,
                   .experts = placement_->shape().experts,
                   .resident = std::vector<bool>(uses_.size()),
                   .uses = uses_};
  for (size_t i = 0; i < uses_.size(); ++i) {
    const auto expert = static_cast<int64_t>(i);
    map.resident[i] =
        fetcher_.buffers().IsHeld(expert, Holder::kPlacement) && fetcher_.buffers().IsReady(expert);
  }
  return map;
}

std::optional<OffloadStats> TieredExperts::Stats() const {
  OffloadStats stats;
  const FetchCounters fetched = fetcher_.counters();
  stats.demand_reads = fetched.demand_reads;
  stats.demand_bytes = fetched.demand_bytes;
  stats.failed_reads = fetched.failed_reads;
  stats.stall_time = fetched.stall_time;
  stats.slots = placement_->shape().slots;
  stats.staging = options_.staging;
  stats.experts = placement_->shape().all_experts();
  stats.capacity_bytes = pool().limit() * pool().buffer_bytes();
  stats.resident_bytes = pool().in_use() * pool().buffer_bytes();
  stats.record_bytes = pool().buffer_bytes();
  stats.policy = std::string(placement_->policy_name());
  stats.refresh_interval = options_.policy.refresh_interval;
  stats.prefetch = fetcher_.prefetcher().prefetch();
  stats.prefetch_bytes = fetched.prefetch.bytes;
  stats.prefetch_used_bytes = fetched.prefetch.used_bytes;
  stats.prefetch_wasted_bytes = fetched.prefetch.wasted_bytes;
  stats.reader = reader_;
  stats.rebuilt_records = fetched.repairs.rebuilt;
  stats.failed_record_writes = fetched.repairs.failed_writes;
  stats.lost_records = fetched.repairs.lost;
  stats.placement = placement_->Total();
  for (size_t i = 0; i < options_.layer_numbers.size(); ++i) {
    stats.layers.push_back({options_.layer_numbers[i], placement_->counters()[i]});
  }
  stats.hidden_time = std::max(absl::ZeroDuration(), fetched.busy_time - fetched.stall_time);
  return stats;
}

}  // namespace tidepool::moe
