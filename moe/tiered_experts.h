// TieredExperts: the ExpertSource of a model whose experts lie in a file, and some of them in
// memory.
//
//   ASSIGN_OR_RETURN(auto experts, TieredExperts::Create(records, std::move(reader), options));
//   experts->LoadResidents([](double fraction) {});
//
// A Placement decides, at each layer's routing, which of the missing experts stay. Each resident
// has a buffer of the pool; `staging` more hold what passes through. A missing expert is read into
// any free buffer (a victim that the layer needs gives its own up once it ran), and given out when
// it has arrived and its hash is right. So a layer starts with those that are there. One that is
// damaged in the file is made again (record_repair.h).
//
// A read that does not end keeps its buffer until it does. Who waits for it is told after
// read_patience, by UNAVAILABLE, and who asks for that expert later at once.
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
#include "absl/types/span.h"
#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"
#include "moe/expert_pool.h"
#include "moe/expert_record.h"
#include "moe/expert_source.h"
#include "moe/offload_control.h"
#include "moe/offload_stats.h"
#include "moe/policy/placement.h"
#include "moe/recent_waste.h"
#include "moe/record_reader.h"
#include "moe/record_repair.h"

namespace tidepool::moe {

struct TieredOptions {
  int top_k = 0;
  int64_t slots = 0;
  int staging = 8;
  PolicyOptions policy;
  Prefetch prefetch = Prefetch::kOn;
  std::vector<int> layer_numbers;  // of each MoE layer in the model, for messages
  // How long less memory may wait for reads that hold some of it.
  absl::Duration shrink_patience = absl::Seconds(5);
  // How long a layer waits for experts while no read ends; then whoever needs one is told.
  absl::Duration read_patience = absl::Seconds(30);
  const base::Clock* clock = &base::Clock::Real();
  RepairOptions repair;
};

// Engine thread only, but for what its reader's threads call.
class TieredExperts final : public ExpertSource, public OffloadControl {
 public:
  // INVALID_ARGUMENT: the policy's options; RESOURCE_EXHAUSTED: no address space. Requires: slots
  // of at least top_k, at most all experts; a staging buffer.
  static absl::StatusOr<std::unique_ptr<TieredExperts>> Create(ExpertRecords records,
                                                               std::unique_ptr<RecordReader> reader,
                                                               TieredOptions options);

  // Reads what the policy wants resident from the start; what of it is not there yet is read when
  // it is first needed. An expert that cannot be read is left out, as are the rest where none comes
  // for read_patience: who needs them will be told.
  // Requires: before the first Request.
  void LoadResidents(const std::function<void(double fraction)>& progress);

  void Request(const LayerRouting& routing, absl::Span<const int32_t> experts) override;
  absl::StatusOr<std::vector<ReadyExpert>> NextReady(Patience patience) override;
  void Release(int32_t expert) override;
  void Postpone(int32_t expert) override;
  void Expect(int moe_layer, absl::Span<const int32_t> experts) override;
  bool WantsExpectations() const override;

  std::optional<OffloadStats> Stats() const override;
  OffloadControl* control() override { return this; }
  OffloadSettings Settings() const override;
  absl::Status Change(const OffloadChange& change) override;
  void RefreshSoon() override { placement_->RefreshSoon(); }
  ExpertMap Map() const override;
  const Placement& placement() const { return *placement_; }

 private:
  enum class State : uint8_t {
    kAbsent,   // no buffer
    kWaiting,  // wanted, no read asked for yet
    kReading,  // a read is on its way into its buffer
    kReady,    // the buffer has the record
  };
  struct Entry {
    int32_t buffer = -1;
    State state = State::kAbsent;
    bool resident = false;     // as the placement sees it
    bool wanted = false;       // of the request at hand, and not yet released
    bool lent = false;         // wanted, and given out
    bool speculative = false;  // expected, and not yet asked for
    bool late = false;         // kReading, and was waited for in vain
    Found found = Found::kResident;
    kernels::FfnWeights weights;  // valid while kReady
  };
  // Of a read that has ended.
  struct Arrival {
    RecordRead read;
    absl::Status status;
  };

  // What waiting for reads came to.
  enum class Wait : uint8_t {
    kCame,     // reads have ended
    kNothing,  // none is on its way that could end in time
    kInVain,   // none has ended in time
  };

  TieredExperts(ExpertRecords records, std::unique_ptr<RecordReader> reader, TieredOptions options,
                ExpertPool pool, std::unique_ptr<Placement> placement);

  int64_t IndexOf(int layer, int32_t expert) const {
    return placement_->residency().IndexOf({layer, expert});
  }
  const ExpertRecord& RecordOf(int64_t index) const;
  absl::Status Named(int64_t index, const absl::Status& status) const;

  void OnRead(const RecordRead& read, const absl::Status& status);  // a reader's thread
  void AskFor(absl::Span<const int32_t> experts);
  void BeginRead(int64_t index, int32_t buffer, ReadPriority priority);
  void BeginWaiting();
  void TakeArrivals();
  Wait AwaitReads(absl::Duration patience);
  bool AwaitArrivals();
  void NoteLate();
  void ClearLate(Entry* entry);
  void FailLate(int64_t index, absl::Duration waited);
  absl::Duration ReadPatience() const;
  void Arrived(const Arrival& arrival);
  int32_t TakeBuffer();
  void WithdrawSpeculative();
  void DropSpeculative(int64_t index);
  void DropDisappointments();
  void DropWasted(int64_t index);
  void GiveBackIfIdle(int64_t index);
  absl::Status Abandon();
  // What a change asks for, checked.
  absl::StatusOr<int64_t> SlotsAfter(const OffloadChange& change) const;
  absl::StatusOr<PolicyOptions> PolicyAfter(const OffloadChange& change) const;
  absl::Status AwaitAllReads();
  void Evict(const std::vector<ExpertRef>& experts);

  const ExpertRecords records_;
  TieredOptions options_;  // as they are in force
  ExpertPool pool_;
  std::unique_ptr<Placement> placement_;
  std::vector<Entry> entries_;  // [layers, experts]
  std::vector<int64_t> uses_;   // [layers, experts]: requests that named it

  // The request at hand, as indices of entries.
  int layer_ = 0;
  int64_t left_ = 0;  // not yet given out
  int64_t lent_ = 0;  // given out and not released
  std::vector<int64_t> requested_;
  std::vector<int64_t> ready_;    // to be given out
  std::vector<int64_t> waiting_;  // for buffers, the next one last
  absl::Status error_;

  std::vector<int64_t> speculative_;  // expected ones that have buffers, the oldest first
  int64_t late_ = 0;                  // how many entries are late
  bool silent_ = false;               // the last wait was in vain, and no read has ended since
  OffloadStats stats_;
  RecentWaste waste_;
  RecordRepair repair_;

  // Shared with the reader's threads.
  mutable base::Mutex mutex_;
  base::CondVar arrived_;
  std::vector<Arrival> arrivals_ TIDEPOOL_GUARDED_BY(mutex_);
  int64_t in_flight_ TIDEPOOL_GUARDED_BY(mutex_) = 0;
  absl::Duration busy_since_ TIDEPOOL_GUARDED_BY(mutex_);
  absl::Duration busy_time_ TIDEPOOL_GUARDED_BY(mutex_);

  std::unique_ptr<RecordReader> reader_;  // last: its threads use what stands above
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_TIERED_EXPERTS_H_
