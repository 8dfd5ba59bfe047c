// EngineStats: what an Engine reports of itself. Plain data.
#ifndef TIDEPOOL_ENGINE_ENGINE_STATS_H_
#define TIDEPOOL_ENGINE_ENGINE_STATS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "engine/kv/kv_disk_stats.h"
#include "kernels/backend.h"
#include "moe/offload_control.h"
#include "moe/offload_stats.h"

namespace tidepool::engine {

// Large because it is one reading: each member is shown by itself in metrics and WorkerStats.
struct EngineStats {
  int64_t sequences_running = 0;
  int64_t sequences_waiting = 0;
  int64_t places = 0;        // requests that may run and wait before more are refused
  absl::Duration room_wait;  // when to come back where none is free
  int64_t kv_blocks_total = 0;
  int64_t kv_blocks_free = 0;    // unused or holding only reusable cache
  int64_t kv_blocks_cached = 0;  // reusable by a later request with the same prefix
  int64_t kv_block_tokens = kernels::kKvBlockTokens;
  std::optional<KvDiskStats> kv_disk;  // where there is one
  KvRestoreStats kv_restores;
  int64_t queued_prompt_tokens = 0;      // that wait, or are being computed
  double prefill_tokens_per_second = 0;  // over the latest prefills; 0: none yet
  double admissions_per_second = 0;      // to a place, while others wait; 0: not known
  int64_t prompt_tokens = 0;             // totals since start
  int64_t cached_prompt_tokens = 0;
  int64_t generated_tokens = 0;
  int64_t requests_finished = 0;
  int64_t requests_cancelled = 0;
  int64_t requests_failed = 0;
  int64_t preemptions = 0;
  int64_t deadline_refusals = 0;  // whose deadlines could not be met
  int64_t steps = 0;
  int64_t expert_hits = 0;
  int64_t expert_misses = 0;
  // Of a model whose experts do not all lie in memory: totals, and what of them came in the latest
  // offload_window.
  std::optional<moe::OffloadStats> offload;
  moe::OffloadStats offload_recent;
  absl::Duration offload_window;
  absl::Duration offload_read_at;  // on the engine's monotonic clock
  bool computing = false;          // a forward pass runs; of experts, its layers so far show
  bool work_pending = false;       // the step thread has something to do, or is at it
  uint64_t progress = 0;           // moves whenever work is done, also within a forward pass
  size_t workspace_high_water_bytes = 0;
  // Of KV and workspace: set aside, and not taken from the machine yet.
  int64_t untouched_bytes = 0;
};

// Who lies in memory of a model whose experts do not all do, and how often each was needed: in all,
// and in the latest `window`.
struct ExpertPlacement {
  moe::ExpertMap map;
  std::vector<int64_t> recent_uses;  // [layers, experts]
  absl::Duration window;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_ENGINE_STATS_H_
