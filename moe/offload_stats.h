// OffloadStats: what experts cost when they do not all fit into memory.
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
  int layer = 0;  // its number in the model
  PlacementCounters counters;
};

// Totals since the start, except for the sizes. Large because it is one reading: each member is
// shown by itself in metrics and OffloadStats (proto).
struct OffloadStats {
  // Sizes.
  int64_t slots = 0;
  int64_t staging = 0;  // records beside them that hold what passes through
  int64_t experts = 0;  // of all layers
  int64_t resident_bytes = 0;
  int64_t capacity_bytes = 0;  // of slots and staging: --expert-memory in use
  int64_t record_bytes = 0;    // of a slot
  std::string policy;
  int64_t refresh_interval = 1;
  Prefetch prefetch = Prefetch::kOn;
  std::string reader;
  int64_t lost_records = 0;  // now: damaged in the file, and cannot be made again

  PlacementCounters placement;        // of all layers
  std::vector<LayerCounters> layers;  // those with experts, in order
  int64_t demand_reads = 0;
  int64_t demand_bytes = 0;
  int64_t prefetch_bytes = 0;
  int64_t prefetch_used_bytes = 0;    // that a layer then asked for
  int64_t prefetch_wasted_bytes = 0;  // dropped unused
  int64_t failed_reads = 0;
  int64_t rebuilt_records = 0;       // that were damaged in the file, and were made again
  int64_t failed_record_writes = 0;  // of these, that could not be put back into the file
  absl::Duration stall_time;         // the engine waited for records
  absl::Duration hidden_time;        // records were on their way and it did not
};

// What came between two readings of one source; sizes are those of `now`.
OffloadStats Difference(const OffloadStats& now, const OffloadStats& before);

// The latest stretch of a source's stats, about kLength long. Thread-compatible.
class OffloadWindow {
 public:
  static constexpr absl::Duration kLength = absl::Seconds(10);

  // A reading at `time`, which never goes back.
  void Add(absl::Duration time, const OffloadStats& stats);

  // Between the first and the last reading of the stretch.
  OffloadStats recent() const;
  absl::Duration length() const;

 private:
  struct Reading {
    absl::Duration time;
    OffloadStats stats;
  };
  std::deque<Reading> readings_;  // ascending in time; the last is the latest
};

// How often each expert was needed lately. Thread-compatible.
class UseWindow {
 public:
  // Whether a reading at `time` is worth its copy.
  bool Due(absl::Duration time) const;
  // `uses`: totals, as many each time. Times never go back.
  void Add(absl::Duration time, std::vector<int64_t> uses);

  // What came since the newest reading that is OffloadWindow::kLength old, or since the first.
  // Requires: readings are of as many.
  std::vector<int64_t> Recent(const std::vector<int64_t>& uses) const;
  // How long before `time` that was.
  absl::Duration Length(absl::Duration time) const;

 private:
  struct Reading {
    absl::Duration time;
    std::vector<int64_t> uses;
  };
  std::deque<Reading> readings_;  // ascending in time
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_OFFLOAD_STATS_H_
