// KvRestores: reads the KV of waiting prompts back from the disk, if this is faster than computing
// it. Calls never block: blocks arrive between steps. Meanwhile the sequences that need them wait,
// and others are planned.
//
//   if (restores->CoveredBlocks(sequence).has_value()) ...       // it waits for blocks to come
//   else if (there is room && restores->Begin(sequence, terms)) ...   // from now on
#ifndef TIDEPOOL_ENGINE_SCHEDULER_KV_RESTORES_H_
#define TIDEPOOL_ENGINE_SCHEDULER_KV_RESTORES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "engine/kv/kv_cache.h"
#include "engine/kv/kv_disk.h"
#include "engine/kv/kv_disk_stats.h"
#include "engine/scheduler/sequence.h"

namespace tidepool::engine {

// Engine thread only. A restore holds the blocks that it took from the cache until it ends. Then
// they are cached as the most recently released.
class KvRestores {
 public:
  // Both outlive this object. `disk` is the cache's disk.
  KvRestores(KvCache* cache, KvDisk* disk) : cache_(cache), disk_(disk) {}
  ~KvRestores() { EndAll(); }

  // Processes the blocks that the disk has read. Ends restores that take longer than computing.
  void Poll(absl::Duration now);

  // The conditions for starting a restore.
  struct Terms {
    absl::Duration now;
    double prompt_rows_per_second = 0;  // 0: unknown
  };
  // Begins to read this sequence's KV that is on the disk but not in memory. Returns false if there
  // is none, or if it is not worth it. While the sequence stays in the queue, a restore that was
  // interrupted is not tried again, except after GiveBack. Requires: the sequence waits; its lease
  // holds nothing; there is room for all its blocks; and it exists until the restore has ended or
  // Forget is called.
  bool Begin(Sequence* sequence, const Terms& terms);
  // If the sequence must wait for blocks that are being read, for itself or for another one with
  // the same beginning, returns how many of its blocks are held already, or reserved for the other
  // one, which goes first. nullopt if it need not wait.
  std::optional<int64_t> CoveredBlocks(Sequence* sequence);

  // Ends the restore with the lowest priority, which must be at most `most_priority`; among equals,
  // the latest one. Others can then take the blocks that have arrived, and its sequence may begin
  // another restore. Returns false if there is none.
  bool GiveBack(int64_t most_priority);
  // Number of blocks that become free when GiveBack ends all restores below this priority.
  int64_t BlocksBelow(int32_t priority) const;
  // Ends the restore that this sequence began. Call it before the sequence is destroyed.
  void Forget(const Sequence* sequence);
  void EndAll();

  int64_t running() const { return static_cast<int64_t>(restores_.size()); }
  // When Poll must be called to end a restore, even if no block arrives.
  absl::Duration NextDeadline() const;
  const KvRestoreStats& stats() const { return stats_; }

 private:
  struct Restore {
    uint64_t ticket = 0;
    Sequence* owner = nullptr;    // began the restore, and waits
    int32_t priority = 0;         // highest priority of the sequences that wait for it
    KvPrefix prefix;              // blocks [arrived, size) of on_disk are still to come, in order
    std::vector<int32_t> tokens;  // of the prefix
    std::vector<int32_t> held;
    size_t arrived = 0;
    absl::Duration give_up_at;
    absl::Duration silent_at;  // time limit for the next block
  };

  bool IsWorthIt(const KvPrefix& prefix, const Terms& terms) const;
  void Start(Sequence* sequence, KvPrefix prefix, const Terms& terms);
  void TakeIn(const KvDisk::Read& read, absl::Duration now);
  void End(size_t index);
  int64_t BlocksToCome() const;

  KvCache* const cache_;
  KvDisk* const disk_;
  std::vector<Restore> restores_;
  uint64_t next_ticket_ = 0;
  // no restore before this time, because the disk was stuck
  absl::Duration begin_from_ = -absl::InfiniteDuration();
  KvRestoreStats stats_;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_KV_RESTORES_H_
