// KvRestores: brings KV of waiting prompts back from the disk, where reading it takes less time
// than computing it. Nothing waits in a call: blocks come in between two steps, and who they are
// for is held back meanwhile, while others are planned.
#ifndef TIDEPOOL_ENGINE_KV_RESTORES_H_
#define TIDEPOOL_ENGINE_KV_RESTORES_H_

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "engine/kv_cache.h"
#include "engine/kv_disk.h"
#include "engine/kv_disk_stats.h"
#include "engine/sequence.h"

namespace tidepool::engine {

// Engine thread only. Blocks that it has taken from the cache are its own until the restore ends:
// then they are cached, the latest released.
class KvRestores {
 public:
  // Both outlive it; the cache's disk.
  KvRestores(KvCache* cache, KvDisk* disk) : cache_(cache), disk_(disk) {}
  ~KvRestores() { GiveBack(); }

  // Takes in what the disk has read; ends what takes longer than computing would.
  void Poll(absl::Duration now);

  // What a restore is judged by.
  struct Terms {
    absl::Duration now;
    double prompt_rows_per_second = 0;  // 0: not known
    int64_t blocks = 0;                 // that the whole sequence takes
    bool may_start = true;
  };
  // Whether this sequence is to wait for blocks that are being read, which this may begin: once a
  // sequence and stay in the queue. Requires: it waits.
  bool Hold(Sequence* sequence, const Terms& terms);

  // Ends all restores; blocks that have come so far can be taken by others. False: none runs.
  bool GiveBack();

  int64_t running() const { return static_cast<int64_t>(restores_.size()); }
  // When Poll has something to end, should nothing come.
  absl::Duration NextDeadline() const;
  const KvRestoreStats& stats() const { return stats_; }

 private:
  struct Restore {
    uint64_t ticket = 0;
    KvPrefix prefix;              // on_disk: [arrived, size) are to come, in this order
    std::vector<int32_t> tokens;  // of the prefix
    std::vector<int32_t> held;
    size_t arrived = 0;
    absl::Duration give_up_at;
    absl::Duration silent_at;  // when the next block is too late
  };

  bool IsComing(Sequence* sequence) const;
  bool IsWorthIt(const KvPrefix& prefix, const Terms& terms) const;
  void Start(const Sequence& sequence, KvPrefix prefix, const Terms& terms);
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

#endif  // TIDEPOOL_ENGINE_KV_RESTORES_H_
