// ExpertFetcher: reads the experts that a layer requests, and returns each one when its read has
// ended, in any order.
//
//   fetcher.Begin(layer, experts);  // reads begin
//   fetcher.ReadWaiting();          // after evictions: more reads begin
//   while (...) {
//     ASSIGN_OR_RETURN(auto wave, fetcher.NextReady(Patience::kUntilOne));
//     ... fetcher.Release(expert);
//   }
//
// A read that does not end keeps its buffer. After read_patience, the request that waits for the
// read fails with UNAVAILABLE. From then on, requests for the same expert fail at once. A damaged
// record is rebuilt (record_repair.h). An expert that cannot be read loses its slot in the
// placement.
#ifndef TIDEPOOL_MOE_EXPERT_FETCHER_H_
#define TIDEPOOL_MOE_EXPERT_FETCHER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/base/clock.h"
#include "moe/expert_buffers.h"
#include "moe/expert_pool.h"
#include "moe/expert_prefetcher.h"
#include "moe/expert_record.h"
#include "moe/expert_source.h"
#include "moe/layer_request.h"
#include "moe/offload_control.h"
#include "moe/policy/placement.h"
#include "moe/read_queue.h"
#include "moe/record_reader.h"
#include "moe/record_repair.h"

namespace tidepool::moe {

struct FetchOptions {
  int prefetch_buffers = 0;  // maximum number of buffers for experts that were read ahead
  Prefetch prefetch = Prefetch::kOn;
  std::vector<int> layer_numbers;  // the model's layer number of each MoE layer, for error messages
  // How long a layer waits for experts while no read ends.
  absl::Duration read_patience = absl::Seconds(30);
  const base::Clock* clock = &base::Clock::Real();
  RepairOptions repair;
};

// Totals since the start.
struct FetchCounters {
  int64_t demand_reads = 0;
  int64_t demand_bytes = 0;
  int64_t failed_reads = 0;
  absl::Duration stall_time;  // total time that NextReady waited
  absl::Duration busy_time;   // total time with at least one read in flight
  PrefetchCounters prefetch;
  RepairStats repairs;
};

// Engine thread only.
class ExpertFetcher {
 public:
  // The parts that an ExpertFetcher uses. The records and the placement must outlive it.
  struct Parts {
    const ExpertRecords* records = nullptr;
    Placement* placement = nullptr;
    std::unique_ptr<RecordReader> reader;
  };
  // The placement's residents get buffers at once, but their data must be read by LoadResidents.
  ExpertFetcher(Parts parts, ExpertPool pool, const FetchOptions& options);

  // Reads all residents. An expert that cannot be read is skipped. If no read ends for
  // read_patience, all remaining experts are skipped. Requires: Begin was not called yet.
  void LoadResidents(const std::function<void(double fraction)>& progress);

  // Begins the request of a layer for these experts, like ExpertSource::Request. They are ascending
  // and distinct. Requires: the previous request is done.
  void Begin(int layer, absl::Span<const int32_t> experts);
  // Begins reads of waiting experts, as long as there are free buffers.
  void ReadWaiting();
  // Implementations of the ExpertSource functions with these names.
  absl::StatusOr<std::vector<ReadyExpert>> NextReady(Patience patience);
  void Release(int32_t expert);
  void Postpone(int32_t expert);
  void PrefetchHint(int layer, absl::Span<const int32_t> experts);

  // Ends the request before all its experts were given out. Its reads that are in flight may end
  // later.
  void Cancel() { Abandon().IgnoreError(); }

  // Waits for reads that no request waits for (from hints and failed requests), because they use
  // buffers. Returns the number of reads that are still in flight after `patience`.
  int64_t AwaitAllReads(absl::Duration patience);

  LayerRequest& request() { return request_; }
  ExpertBuffers& buffers() { return buffers_; }
  const ExpertBuffers& buffers() const { return buffers_; }
  ExpertPrefetcher& prefetcher() { return prefetcher_; }
  const ExpertPrefetcher& prefetcher() const { return prefetcher_; }
  FetchCounters counters() const;

 private:
  int64_t IndexOf(int layer, int32_t expert) const {
    return placement_.residency().IndexOf({layer, expert});
  }
  ExpertRef RefOf(int64_t expert) const { return placement_.residency().At(expert); }
  absl::Status Named(int64_t expert, const absl::Status& status) const;

  int32_t TakeBuffer();
  void TakeArrivals();
  void Arrive(const ReadQueue::Arrival& arrival);
  void FailRead(int64_t expert, const absl::Status& status);
  bool AwaitArrivals();
  void FailLate(int64_t expert, absl::Duration waited);
  absl::Status Abandon();

  const FetchOptions options_;
  const ExpertRecords& records_;
  Placement& placement_;
  LayerRequest request_;
  FetchCounters counters_;  // only the counters that no other member counts
  RecordRepair repair_;
  ExpertBuffers buffers_;
  ReadQueue reads_;  // declared after buffers_, because its reads write into them
  ExpertPrefetcher prefetcher_;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_EXPERT_FETCHER_H_
