// OffloadStats: the costs of experts that do not all fit into memory.
#ifndef TIDEPOOL_MOE_OFFLOAD_STATS_H_
#define TIDEPOOL_MOE_OFFLOAD_STATS_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "moe/offload_control.h"
#include "moe/policy/placement.h"

namespace tidepool::moe {

struct LayerCounters {
  int layer = 0;  // layer number in the model
  PlacementCounters counters;
};

// Totals since the start, except for the sizes. Large because it is one reading: metrics and
// OffloadStats (proto) show each member separately.
struct OffloadStats {
  // Sizes.
  int64_t slots = 0;
  int64_t staging = 0;  // more records, for experts that are used once and dropped
  int64_t experts = 0;  // in all layers
  int64_t resident_bytes = 0;
  int64_t capacity_bytes = 0;  // slots and staging: --expert-memory
  int64_t record_bytes = 0;    // bytes of a slot
  std::string policy;
  int64_t refresh_interval = 1;
  Prefetch prefetch = Prefetch::kOn;
  std::string reader;
  int64_t lost_records = 0;  // current number of damaged records that cannot be rebuilt

  PlacementCounters placement;        // sum of all layers
  std::vector<LayerCounters> layers;  // the MoE layers, in order
  int64_t demand_reads = 0;
  int64_t demand_bytes = 0;
  int64_t prefetch_bytes = 0;
  int64_t prefetch_used_bytes = 0;    // later requested by a layer
  int64_t prefetch_wasted_bytes = 0;  // dropped unused
  int64_t failed_reads = 0;
  int64_t rebuilt_records = 0;       // damaged records that were rebuilt
  int64_t failed_record_writes = 0;  // rebuilt records that could not be written to the file
  absl::Duration stall_time;         // time that the engine waited for records
  absl::Duration hidden_time;        // time with reads in flight while the engine computed
};

// Returns the change between two readings of one source. Sizes are the ones of `now`.
OffloadStats Difference(const OffloadStats& now, const OffloadStats& before);

// Thread-compatible. Statistics of a source for the last interval of about kLength.
class OffloadWindow {
 public:
  static constexpr absl::Duration kLength = absl::Seconds(10);

  // Adds a reading at `time`, which never decreases.
  void Add(absl::Duration time, const OffloadStats& stats);

  // The change between the first and the last reading of the interval.
  OffloadStats recent() const;
  absl::Duration length() const;

 private:
  struct Reading {
    absl::Duration time;
    OffloadStats stats;
  };
  std::deque<Reading> readings_;  // in ascending order of time
};

// Thread-compatible. How often each expert was needed recently.
class UseWindow {
 public:
  // True if a reading at `time` is worth the copy.
  bool Due(absl::Duration time) const;
  // `uses` are totals, always of the same size. Times never decrease.
  void Add(absl::Duration time, std::vector<int64_t> uses);

  // The uses since the newest reading that is at least OffloadWindow::kLength old, or else since
  // the first. Requires: `uses` has the size of the readings.
  std::vector<int64_t> Recent(const std::vector<int64_t>& uses) const;
  // How long before `time` that reading was.
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
