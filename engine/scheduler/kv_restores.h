// KvRestores: reads the KV of waiting prompts back from the disk, if this is faster than computing
// it. No call blocks: blocks arrive between steps. Meanwhile, the sequences that need them wait,
// and other sequences are planned.
//
//   if (restores->CoveredBlocks(sequence).has_value()) ...            // it waits for blocks
//   else if (there is room && restores->Begin(sequence, terms)) ...   // it waits from now on
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

// Engine thread only. A restore holds the blocks that it has read until the restore ends. After
// that, they are cached like blocks that were released just now.
class KvRestores {
 public:
  // `cache` and `disk` must outlive this object. `disk` is the disk of the cache.
  KvRestores(KvCache* cache, KvDisk* disk) : cache_(cache), disk_(disk) {}
  ~KvRestores() { EndAll(); }

  // Processes the blocks that the disk has read. Ends restores that take longer than computing
  // would.
  void Poll(absl::Duration now);

  // The inputs of the decision whether a restore begins.
  struct Terms {
    absl::Duration now;
    double prompt_rows_per_second = 0;  // 0: unknown
  };
  // Begins to read the KV of this sequence that is on the disk and not in memory. Returns false if
  // there is no such KV, or if computing it is faster. An interrupted restore is not tried again
  // while the sequence stays in the queue, unless GiveBack interrupted it. Requires: the sequence
  // waits; its lease holds no block; there is room for all its blocks; and the sequence exists
  // until the restore has ended or Forget is called.
  bool Begin(Sequence* sequence, const Terms& terms);
  // Returns a value if the sequence must wait for blocks that are being read, either for itself or
  // for another sequence with the same first tokens, which is then admitted first. The value is the
  // number of the sequence's blocks that are held already, or reserved for the other sequence.
  // Returns nullopt if the sequence does not have to wait.
  std::optional<int64_t> CoveredBlocks(Sequence* sequence);

  // Ends the restore with the lowest priority, if this priority is at most `max_priority`. Among
  // equal priorities, ends the latest restore. Other sequences can then use the blocks that the
  // restore has read, and its sequence may begin another restore. Returns false if there is no such
  // restore.
  bool GiveBack(int64_t max_priority);
  // Number of blocks that become free if GiveBack ends all restores with a lower priority than
  // this.
  int64_t BlocksBelow(int32_t priority) const;
  // Ends the restore that this sequence began. Must be called before the sequence is destroyed.
  void Forget(const Sequence* sequence);
  void EndAll();

  int64_t running() const { return static_cast<int64_t>(restores_.size()); }
  // The time at which Poll must be called even if no block arrives, to end a restore that is too
  // slow.
  absl::Duration NextDeadline() const;
  const KvRestoreStats& stats() const { return stats_; }

 private:
  struct Restore {
    uint64_t ticket = 0;
    Sequence* owner = nullptr;  // the waiting sequence that began the restore
    int32_t priority = 0;  // the highest priority among the sequences that wait for this restore
    // on_disk[arrived] and the blocks after it are not read yet; they are read in order
    KvPrefix prefix;
    std::vector<int32_t> tokens;  // the tokens of the prefix
    std::vector<int32_t> held;
    size_t arrived = 0;
    absl::Duration give_up_at;
    absl::Duration silent_at;  // if no block arrives until this time, the restore ends
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
  // no restore begins before this time, because the disk was stuck
  absl::Duration begin_from_ = -absl::InfiniteDuration();
  KvRestoreStats stats_;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_KV_RESTORES_H_
