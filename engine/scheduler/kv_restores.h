// KvRestores: brings KV of waiting prompts back from the disk, where reading it takes less time
// than computing it. Nothing waits in a call: blocks come in between two steps, and who they are
// for is held back meanwhile, while others are planned.
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

// Engine thread only. Blocks that it has taken from the cache are its own until the restore ends:
// then they are cached, the latest released.
class KvRestores {
 public:
  // Both outlive it; the cache's disk.
  KvRestores(KvCache* cache, KvDisk* disk) : cache_(cache), disk_(disk) {}
  ~KvRestores() { EndAll(); }

  // Takes in what the disk has read; ends what takes longer than computing would.
  void Poll(absl::Duration now);

  // What a restore is judged by.
  struct Terms {
    absl::Duration now;
    double prompt_rows_per_second = 0;  // 0: not known
  };
  // Begins to read what the disk has of this sequence beyond memory: not again, in its stay in the
  // queue, after that was cut short by anything but GiveBack. False: nothing, or nothing that is
  // worth it. Requires: it waits, its lease holds nothing, all its blocks have room, and it stays
  // until the restore has ended or Forget.
  bool Begin(Sequence* sequence, const Terms& terms);
  // Of a sequence that is to wait for blocks that are being read, for it or for another one that
  // begins alike: how many of its blocks are held already, or kept for the other one, which goes
  // before it. nullopt: it waits for none.
  std::optional<int64_t> CoveredBlocks(Sequence* sequence);

  // Ends the restore of the lowest priority, `most_priority` at most; of equals the latest. Blocks
  // that have come so far can be taken by others, and its sequence may begin another one. False:
  // there is none.
  bool GiveBack(int64_t most_priority);
  // Blocks that nobody holds any more once GiveBack has ended the restores below this priority.
  int64_t BlocksBelow(int32_t priority) const;
  // Ends the restore that this sequence has begun: it is about to go.
  void Forget(const Sequence* sequence);
  void EndAll();

  int64_t running() const { return static_cast<int64_t>(restores_.size()); }
  // When Poll has something to end, should nothing come.
  absl::Duration NextDeadline() const;
  const KvRestoreStats& stats() const { return stats_; }

 private:
  struct Restore {
    uint64_t ticket = 0;
    Sequence* owner = nullptr;    // which began it, and waits
    int32_t priority = 0;         // the highest of those that were found to wait for it
    KvPrefix prefix;              // on_disk: [arrived, size) are to come, in this order
    std::vector<int32_t> tokens;  // of the prefix
    std::vector<int32_t> held;
    size_t arrived = 0;
    absl::Duration give_up_at;
    absl::Duration silent_at;  // when the next block is too late
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
  absl::Duration begin_from_ = -absl::InfiniteDuration();  // a disk that is silent is let be
  KvRestoreStats stats_;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_KV_RESTORES_H_
