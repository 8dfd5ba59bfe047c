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
  ASSIGN_OR_RETURN(TierSlots slots,
                   TierSlots::Create(records, {.top_k = options.top_k,
                                               .slots = options.slots,
                                               .staging = options.staging,
                                               .policy = std::move(options.policy),
                                               .layer_numbers = options.layer_numbers}));
  const int64_t most = slots.placement().shape().all_experts() + options.staging;
  ASSIGN_OR_RETURN(ExpertPool pool,
                   ExpertPool::Create(records.largest_bytes(),
                                      static_cast<int32_t>(options.slots + options.staging),
                                      static_cast<int32_t>(most), options.pin));
  return std::unique_ptr<TieredExperts>(new TieredExperts(
      std::move(records), std::move(reader), options, std::move(pool), std::move(slots)));
}

TieredExperts::TieredExperts(ExpertRecords records, std::unique_ptr<RecordReader> reader,
                             const TieredOptions& options, ExpertPool pool, TierSlots slots)
    : records_(std::move(records)),
      shrink_patience_(options.shrink_patience),
      slots_(std::move(slots)),
      reader_(reader->Description()),
      fetcher_(
          {.records = &records_, .placement = &slots_.placement(), .reader = std::move(reader)},
          std::move(pool),
          // Half of the staging buffers. The other half is for demand reads of experts that are not
          // kept.
          {.prefetch_buffers = options.staging / 2,
           .prefetch = options.prefetch,
           .layer_numbers = options.layer_numbers,
           .read_patience = options.read_patience,
           .clock = options.clock,
           .repair = options.repair}) {}

void TieredExperts::Request(const LayerRouting& routing, absl::Span<const int32_t> experts) {
  fetcher_.Begin(routing.layer, experts);
  // The layer will not run, so no expert should be evicted for this layer.
  if (fetcher_.request().failed()) return;
  // Decide while the disk reads.
  const absl::Span<const Lookup> lookups = slots_.Decide(routing);
  CHECK_EQ(lookups.size(), experts.size());
  Keep(routing.layer, lookups);
  fetcher_.ReadWaiting();
}

// Carries out a decision: which experts are kept, and which ones are evicted.
void TieredExperts::Keep(int layer, absl::Span<const Lookup> lookups) {
  for (const Lookup& lookup : lookups) {
    fetcher_.request().SetFound(IndexOf(layer, lookup.expert), lookup.action == LookupAction::kHit
                                                                   ? Found::kResident
                                                                   : Found::kFetched);
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
  return slots_.Settings(PoolUse::Of(pool()), fetcher_.prefetcher().prefetch());
}

absl::Status TieredExperts::Change(const OffloadChange& change) {
  CHECK(fetcher_.request().done()) << "experts are in use";
  const int64_t before = placement().shape().slots;
  ASSIGN_OR_RETURN(const int64_t slots, slots_.SlotsAfterChange(change, pool().in_use(), records_));
  ASSIGN_OR_RETURN(PolicyOptions policy, slots_.PolicyAfterChange(change));
  if (slots < before) RETURN_IF_ERROR(AwaitAllReads());
  if (slots != before) RETURN_IF_ERROR(Resize(slots));
  Evict(slots_.SetPolicy(change, std::move(policy)));
  fetcher_.prefetcher().set_prefetch(change.prefetch.value_or(fetcher_.prefetcher().prefetch()));
  return absl::OkStatus();
}

// Waits for reads that no layer waits for (from hints and failed requests), because they use memory
// until they end. Stops waiting after shrink_patience, so that a disk that hangs does not block the
// engine.
absl::Status TieredExperts::AwaitAllReads() {
  const int64_t left = fetcher_.AwaitAllReads(shrink_patience_);
  if (left == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "cannot free memory, so nothing was changed: ", records_.path, " has not completed ", left,
      " reads within ", absl::FormatDuration(shrink_patience_), "; check its disk, and retry"));
}

absl::Status TieredExperts::Resize(int64_t slots) {
  const auto limit = static_cast<int32_t>(slots + slots_.options().staging);
  if (limit > pool().limit()) RETURN_IF_ERROR(fetcher_.buffers().SetLimit(limit));
  ASSIGN_OR_RETURN(const std::vector<ExpertRef> evicted, slots_.placement().Resize(slots));
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
  const ExpertBuffers& buffers = fetcher_.buffers();
  return slots_.Map([&](int64_t expert) {
    return buffers.IsHeld(expert, Holder::kPlacement) && buffers.IsReady(expert);
  });
}

std::optional<OffloadStats> TieredExperts::Stats() const {
  OffloadStats stats;
  const FetchCounters fetched = fetcher_.counters();
  stats.demand_reads = fetched.demand_reads;
  stats.demand_bytes = fetched.demand_bytes;
  stats.failed_reads = fetched.failed_reads;
  stats.stall_time = fetched.stall_time;
  slots_.Describe(PoolUse::Of(pool()), fetcher_.prefetcher().prefetch(), &stats);
  stats.prefetch_bytes = fetched.prefetch.bytes;
  stats.prefetch_used_bytes = fetched.prefetch.used_bytes;
  stats.prefetch_wasted_bytes = fetched.prefetch.wasted_bytes;
  stats.reader = reader_;
  stats.rebuilt_records = fetched.repairs.rebuilt;
  stats.failed_record_writes = fetched.repairs.failed_writes;
  stats.lost_records = fetched.repairs.lost;
  stats.hidden_time = std::max(absl::ZeroDuration(), fetched.busy_time - fetched.stall_time);
  return stats;
}

}  // namespace tidepool::moe
