// TieredExperts: the ExpertSource of a model whose experts are in a file. Some of the experts are
// also in memory.
//
//   ASSIGN_OR_RETURN(auto experts, TieredExperts::Create(records, std::move(reader), options));
//   experts->LoadResidents([](double fraction) {});
//
// When a layer's routing is known, a Placement decides which of the missing experts become
// resident. Each resident has a buffer. `staging` more buffers are for experts that are used once
// and then dropped. A missing expert is read into any free buffer, and is given out when the read
// has ended and its hash matches. If the placement evicts an expert that this layer needs, the
// expert's buffer becomes free only after the layer has computed the expert. So a layer first
// computes the experts that are in memory. An expert whose record is damaged is rebuilt
// (record_repair.h).
//
// An ExpertFetcher does the reads, for the placement and for the layers.
#ifndef TIDEPOOL_MOE_TIERED_EXPERTS_H_
#define TIDEPOOL_MOE_TIERED_EXPERTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/base/clock.h"
#include "moe/expert_fetcher.h"
#include "moe/expert_pool.h"
#include "moe/expert_record.h"
#include "moe/expert_source.h"
#include "moe/offload_control.h"
#include "moe/offload_stats.h"
#include "moe/policy/placement.h"
#include "moe/record_reader.h"
#include "moe/record_repair.h"
#include "moe/tier_slots.h"

namespace tidepool::moe {

struct TieredOptions {
  int top_k = 0;
  int64_t slots = 0;
  int staging = 8;
  PolicyOptions policy;
  Prefetch prefetch = Prefetch::kOn;
  std::vector<int> layer_numbers;  // the model's layer number of each MoE layer, for error messages
  // How long a reduction of the memory may wait for reads that still use it.
  absl::Duration shrink_patience = absl::Seconds(5);
  // How long a layer waits for experts while no read ends.
  absl::Duration read_patience = absl::Seconds(30);
  const base::Clock* clock = &base::Clock::Real();
  RepairOptions repair;
  // If not null, the memory of the experts is pinned for this backend (KernelBackend::PinHost). The
  // backend must outlive the TieredExperts.
  kernels::KernelBackend* pin = nullptr;
};

// Engine thread only.
class TieredExperts final : public ExpertSource, public OffloadControl {
 public:
  // Returns INVALID_ARGUMENT if the policy's options are wrong, and RESOURCE_EXHAUSTED if there is
  // not enough address space. Requires: at least top_k slots and at most one per expert; at least
  // one staging buffer.
  static absl::StatusOr<std::unique_ptr<TieredExperts>> Create(ExpertRecords records,
                                                               std::unique_ptr<RecordReader> reader,
                                                               TieredOptions options);

  // Reads the experts that the policy wants in memory at the start. An expert that cannot be read
  // now is read when it is first needed. Requires: Request was not called yet.
  void LoadResidents(const std::function<void(double fraction)>& progress) {
    fetcher_.LoadResidents(progress);
  }

  void Request(const LayerRouting& routing, absl::Span<const int32_t> experts) override;
  absl::StatusOr<std::vector<ReadyExpert>> NextReady(Patience patience) override {
    return fetcher_.NextReady(patience);
  }
  void Release(int32_t expert) override { fetcher_.Release(expert); }
  void Postpone(int32_t expert) override { fetcher_.Postpone(expert); }
  void PrefetchHint(int moe_layer, absl::Span<const int32_t> experts) override {
    fetcher_.PrefetchHint(moe_layer, experts);
  }
  bool WantsHints() const override { return fetcher_.prefetcher().WantsHints(); }

  std::optional<OffloadStats> Stats() const override;
  OffloadControl* control() override { return this; }
  OffloadSettings Settings() const override;
  absl::Status Change(const OffloadChange& change) override;
  void RefreshSoon() override { slots_.placement().RefreshSoon(); }
  ExpertMap Map() const override;
  const Placement& placement() const { return slots_.placement(); }

  // For a tier above (moe/device).
  const ExpertRecords& records() const { return records_; }
  // Ends the current request, if there is one, before all its experts were given out and released.
  void CancelRequest() { fetcher_.Cancel(); }
  // Keeps an expert in memory until EndCopy, and returns its record. Returns null if the expert is
  // not in memory. Each call that returns a record needs its own EndCopy. While copies keep experts
  // that are not resident, less memory is free for reads: NextReady(Patience::kUntilOne) then
  // returns an empty result if the next expert needs memory.
  const std::byte* BeginCopy(ExpertRef expert);
  void EndCopy(ExpertRef expert) {
    fetcher_.buffers().EndCopy(IndexOf(expert.layer, expert.expert));
  }

 private:
  TieredExperts(ExpertRecords records, std::unique_ptr<RecordReader> reader,
                const TieredOptions& options, ExpertPool pool, TierSlots slots);

  int64_t IndexOf(int layer, int32_t expert) const {
    return placement().residency().IndexOf({layer, expert});
  }
  const ExpertPool& pool() const { return fetcher_.buffers().pool(); }
  void Keep(int layer, absl::Span<const Lookup> lookups);
  absl::Status AwaitAllReads();
  absl::Status Resize(int64_t slots);
  void Evict(const std::vector<ExpertRef>& experts);

  const ExpertRecords records_;
  const absl::Duration shrink_patience_;  // see TieredOptions
  TierSlots slots_;
  std::string reader_;  // the reader's description
  ExpertFetcher fetcher_;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_TIERED_EXPERTS_H_
