// OffloadStats: what the forward passes cost because some experts are not in memory.
#ifndef TIDEPOOL_MOE_OFFLOAD_STATS_H_
#define TIDEPOOL_MOE_OFFLOAD_STATS_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "moe/offload_control.h"
#include "moe/policy/placement.h"

namespace tidepool::moe {

struct LayerCounters {
  int layer = 0;  // the layer's number in the model
  PlacementCounters counters;
};

// The host's memory as a tier below a device's memory, and what was done with the misses of the
// device. Totals since the start, except for the sizes and the estimates.
struct HostTierStats {
  int64_t slots = 0;
  int64_t staging = 0;
  int64_t resident_bytes = 0;
  int64_t capacity_bytes = 0;   // bytes of slots and staging records together; all are pinned
  PlacementCounters placement;  // its lookups are misses of the device

  // A miss of the device is either copied and then computed by the device, or computed by the CPU.
  int64_t copied = 0;
  int64_t computed_on_cpu = 0;
  int64_t copied_for_later = 0;  // part of computed_on_cpu: experts that were copied, too
  // Misses that had been copied ahead because of a hint. They are not counted in `copied`.
  int64_t copied_ahead = 0;
  int64_t copied_bytes = 0;       // bytes of all copies that have ended
  absl::Duration copy_time;       // total time of these copies
  absl::Duration copy_wait_time;  // total time that the host waited for copies
  absl::Duration cpu_time;        // total time that the CPU computed experts
  double copy_bytes_per_s = 0;    // current estimate of the bandwidth of copies; 0: unknown
  // current estimate of the CPU's speed, for experts with one row; 0: unknown
  double cpu_bytes_per_s = 0;
};

// Totals since the start. Only the sizes are current values. Large because metrics and OffloadStats
// (proto) show each member separately.
struct OffloadStats {
  // Current sizes.
  int64_t slots = 0;
  // records besides the slots, for experts that are used once and then dropped
  int64_t staging = 0;
  int64_t experts = 0;  // number of experts in all layers
  int64_t resident_bytes = 0;
  int64_t capacity_bytes = 0;  // bytes of slots and staging records together: --expert-memory
  int64_t record_bytes = 0;    // bytes of a slot
  std::string policy;
  int64_t refresh_interval = 1;
  Prefetch prefetch = Prefetch::kOn;
  std::string reader;
  int64_t lost_records = 0;  // current number of damaged records that cannot be rebuilt

  PlacementCounters placement;        // sum over all layers
  std::vector<LayerCounters> layers;  // for each MoE layer, in order
  int64_t demand_reads = 0;
  int64_t demand_bytes = 0;
  int64_t prefetch_bytes = 0;
  int64_t prefetch_used_bytes = 0;    // part of prefetch_bytes that a layer requested later
  int64_t prefetch_wasted_bytes = 0;  // part of prefetch_bytes that was dropped without use
  int64_t failed_reads = 0;
  int64_t rebuilt_records = 0;       // damaged records that were rebuilt
  int64_t failed_record_writes = 0;  // rebuilt records that could not be written to the file
  absl::Duration stall_time;         // total time that the engine waited for records
  absl::Duration hidden_time;        // time in which reads were in flight while the engine computed

  // Set if the experts are in a device's memory. Then the members above describe the device's
  // memory, except for those about reads: they are about reads of the file into the host's memory.
  std::optional<HostTierStats> host;
};

// Returns the change between two readings of one source. The sizes are those of `now`.
OffloadStats Difference(const OffloadStats& now, const OffloadStats& before);

// Thread-compatible. The statistics of a source over the most recent kLength, approximately.
class OffloadWindow {
 public:
  static constexpr absl::Duration kLength = absl::Seconds(10);

  // Adds a reading that was made at `time`. Times must not decrease.
  void Add(absl::Duration time, const OffloadStats& stats);

  // The change between the first and the last reading of the interval, and the time between them.
  OffloadStats recent() const;
  absl::Duration length() const;

 private:
  struct Reading {
    absl::Duration time;
    OffloadStats stats;
  };
  std::deque<Reading> readings_;  // in ascending order of time
};

// Thread-compatible. Counts how often each expert was needed recently.
class UseWindow {
 public:
  // Returns whether it is time for another reading. Each reading is a copy of all counts.
  bool Due(absl::Duration time) const;
  // Adds a reading. `uses` are totals, and always have the same size. Times must not decrease.
  void Add(absl::Duration time, std::vector<int64_t> uses);

  // Returns the uses since the base reading. That is the newest reading that is at least
  // OffloadWindow::kLength old, or the first reading if none is. Requires: `uses` has the same size
  // as the readings.
  std::vector<int64_t> Recent(const std::vector<int64_t>& uses) const;
  // Returns the age of the base reading at `time`.
  absl::Duration Length(absl::Duration time) const;

 private:
  struct Reading {
    absl::Duration time;
    std::vector<int64_t> uses;
  };
  std::deque<Reading> readings_;  // in ascending order of time
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_OFFLOAD_STATS_H_
