// EngineStats: the statistics of an Engine. Plain data.
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

// Large because metrics and WorkerStats show each member separately.
struct EngineStats {
  int64_t sequences_running = 0;
  int64_t sequences_waiting = 0;
  int64_t places = 0;        // maximum number of requests that run or wait
  absl::Duration room_wait;  // how long a refused caller should wait, if the queue is full
  int64_t kv_blocks_total = 0;
  int64_t kv_blocks_free = 0;    // blocks that are unused or contain only cached KV
  int64_t kv_blocks_cached = 0;  // blocks that a later request with the same prefix can use again
  int64_t kv_block_tokens = kernels::kKvBlockTokens;
  int64_t kv_state_bytes = 0;          // bytes of one recurrent state; 0 if the model has none
  int64_t kv_checkpoints = 0;          // number of recurrent states that later requests can use
  std::optional<KvDiskStats> kv_disk;  // set if there is a KV disk
  KvRestoreStats kv_restores;
  int64_t queued_prompt_tokens = 0;      // number of prompt tokens that wait or are being computed
  double prefill_tokens_per_second = 0;  // measured in the latest prefills; 0: not measured yet
  double admissions_per_second = 0;  // sequences admitted per second while others wait; 0: unknown
  int64_t prompt_tokens = 0;         // from here to expert_misses: totals since the start
  int64_t cached_prompt_tokens = 0;
  int64_t generated_tokens = 0;
  int64_t requests_finished = 0;
  int64_t requests_cancelled = 0;
  int64_t requests_failed = 0;
  int64_t preemptions = 0;
  int64_t deadline_refusals = 0;  // requests that were refused because of their deadlines
  int64_t steps = 0;
  int64_t expert_hits = 0;
  int64_t expert_misses = 0;
  // The next four are set if not all experts are in memory. `offload` has the totals since the
  // start, and `offload_recent` has the change during the latest offload_window.
  std::optional<moe::OffloadStats> offload;
  moe::OffloadStats offload_recent;
  absl::Duration offload_window;
  absl::Duration offload_read_at;  // when `offload` was read, on the engine's monotonic clock
  bool computing = false;  // a forward pass is running; expert counts include its completed layers
  bool work_pending = false;  // the step thread is working, or has work to do
  uint64_t progress = 0;      // increases whenever there is progress, also during a forward pass
  size_t workspace_high_water_bytes = 0;
  // Bytes of KV and workspace in the host's memory that the system has not allocated yet.
  int64_t untouched_bytes = 0;
};

// Which experts are in memory, and how often each was needed: since the start, and during the
// latest `window`. Only for a model whose experts are not all in memory.
struct ExpertPlacement {
  moe::ExpertMap map;
  std::vector<int64_t> recent_uses;  // [layers, experts]
  absl::Duration window;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_ENGINE_STATS_H_
