// ExpertPrefetcher: reads experts ahead that a layer will probably ask for, and stops if too few of
// the hints come true.
//
// What it reads ahead takes at most `limit` buffers. An expert that its layer asks for is used
// (UseIfHinted). The others are wasted: dropped when their layer has asked for other experts, or
// when a read on demand needs the buffer.
#ifndef TIDEPOOL_MOE_EXPERT_PREFETCHER_H_
#define TIDEPOOL_MOE_EXPERT_PREFETCHER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "moe/expert_buffers.h"
#include "moe/offload_control.h"
#include "moe/read_queue.h"

namespace tidepool::moe {

// Thread-compatible. The share of what was read lately that was read ahead and wasted. Counts are
// halved whenever they cover two windows, so that they describe the last one or two, the newer one
// more.
//
// Why a window of 1,024 records: with fewer, chance misleads (if each record is wasted with a
// probability of 6 %, 8 % of 2,000 hardly ever are). It is also many times what may be in flight
// when the limit is passed (half of the staging records), so that the excess over the limit is
// small: of any 16 windows in a row at most a tenth is wasted. More records would describe a
// workload that is over: a window is some ten tokens of Qwen3-30B at half its experts, one or two
// seconds of a disk.
class RecentWaste {
 public:
  static constexpr int64_t kWindowRecords = 1024;
  static constexpr int64_t kMaxPercent = 8;

  // record_bytes: of the largest.
  explicit RecentWaste(int64_t record_bytes) : window_bytes_(kWindowRecords * record_bytes) {}

  // Read on demand, or read ahead and then asked for.
  void AddUsed(int64_t bytes) { Add(bytes, 0); }
  // Read ahead, and not asked for.
  void AddWasted(int64_t bytes) { Add(bytes, bytes); }

  bool IsTooMuch() const { return wasted_bytes_ * 100 > read_bytes_ * kMaxPercent; }

 private:
  void Add(int64_t read_bytes, int64_t wasted_bytes) {
    read_bytes_ += read_bytes;
    wasted_bytes_ += wasted_bytes;
    if (read_bytes_ < 2 * window_bytes_) return;
    read_bytes_ /= 2;
    wasted_bytes_ /= 2;
  }

  const int64_t window_bytes_;
  int64_t read_bytes_ = 0;
  int64_t wasted_bytes_ = 0;
};

// Totals since the start.
struct PrefetchCounters {
  int64_t bytes = 0;         // read ahead, without reads that were withdrawn
  int64_t used_bytes = 0;    // of these, asked for by a layer
  int64_t wasted_bytes = 0;  // of these, dropped unused
};

// Engine thread only.
class ExpertPrefetcher {
 public:
  struct Options {
    Prefetch prefetch = Prefetch::kOn;
    int limit = 0;  // buffers
  };

  // Both outlive it.
  ExpertPrefetcher(ExpertBuffers* buffers, ReadQueue* reads, const Options& options);

  // Whether Hint would read something ahead: it is on, experts are missing, and waste is low.
  bool WantsHints() const;
  // Begins to read absent ones of `experts`, the first ones first, while buffers are free.
  void Hint(absl::Span<const int64_t> experts);

  // If the expert was read ahead, its layer asks for it now: it counts as used. Requires: another
  // holder keeps it.
  void UseIfHinted(int64_t expert);
  // Bytes that are read on demand, of which the share of waste is taken.
  void NoteDemand(int64_t bytes) { waste_.AddUsed(bytes); }

  // Takes back reads that have not begun: they do not count.
  void Withdraw();
  // Drops what is read ahead of the experts [begin, end).
  void DropRange(int64_t begin, int64_t end);
  // Drops the oldest one that has arrived. False: there is none.
  bool DropOldest();
  // Drops this one, if it was read ahead.
  void DropIfHinted(int64_t expert);

  void set_prefetch(Prefetch prefetch) { prefetch_ = prefetch; }
  Prefetch prefetch() const { return prefetch_; }
  const PrefetchCounters& counters() const { return counters_; }

 private:
  void Forget(int64_t expert);

  ExpertBuffers* const buffers_;
  ReadQueue* const reads_;
  const size_t limit_;
  Prefetch prefetch_;
  std::vector<int64_t> ahead_;  // experts that Holder::kPrefetch holds, the oldest first
  RecentWaste waste_;
  PrefetchCounters counters_;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_EXPERT_PREFETCHER_H_
