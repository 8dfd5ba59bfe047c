// ExpertPrefetcher: reads experts ahead that a layer will probably request. It stops if too many
// hints are wrong.
//
// The experts that are read ahead use at most `limit` buffers. If the layer requests such an
// expert, the expert counts as used (UseIfHinted). Otherwise it counts as wasted, and is dropped
// when its layer has requested other experts or when a demand read needs the buffer.
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

// Thread-compatible. Computes which share of the recently read bytes was read ahead and not used.
// When the counts cover two windows, they are halved. So they describe the last one or two windows,
// and the newer window has more weight.
//
// A window has 1,024 records. With fewer records, the share would be too random: if each record is
// wasted with a probability of 6 %, it almost never happens that more than 8 % of 2,000 records are
// wasted. A window is also much larger than the number of reads in flight when the limit is
// exceeded (half of the staging records). So the excess is small: in any 16 consecutive windows, at
// most a tenth is wasted. With more records, the share would react too slowly. A window is about
// ten tokens of Qwen3-30B with half of its experts in memory, or one to two seconds of reading.
class RecentWaste {
 public:
  static constexpr int64_t kWindowRecords = 1024;
  static constexpr int64_t kMaxPercent = 8;

  // record_bytes is the size of the largest record.
  explicit RecentWaste(int64_t record_bytes) : window_bytes_(kWindowRecords * record_bytes) {}

  // Adds bytes that were read on demand, or read ahead and then requested.
  void AddUsed(int64_t bytes) { Add(bytes, 0); }
  // Adds bytes that were read ahead and not requested.
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
  int64_t bytes = 0;         // bytes that were read ahead, without cancelled reads
  int64_t used_bytes = 0;    // part of `bytes` that a layer requested
  int64_t wasted_bytes = 0;  // part of `bytes` that was dropped without use
};

// Engine thread only.
class ExpertPrefetcher {
 public:
  struct Options {
    Prefetch prefetch = Prefetch::kOn;
    int limit = 0;  // maximum number of buffers for experts that were read ahead
  };

  // `buffers` and `reads` must outlive this object.
  ExpertPrefetcher(ExpertBuffers* buffers, ReadQueue* reads, const Options& options);

  // Returns whether Hint would begin reads. It does if prefetch is on, some experts are not in
  // memory, and the waste is low.
  bool WantsHints() const;
  // Begins to read those of `experts` that are not in memory, in this order, while buffers are
  // free.
  void Hint(absl::Span<const int64_t> experts);

  // If the expert was read ahead, counts it as used, because its layer requests it now. Requires:
  // another holder keeps the expert.
  void UseIfHinted(int64_t expert);
  // Counts bytes that are read on demand. The share of waste needs them.
  void NoteDemand(int64_t bytes) { waste_.AddUsed(bytes); }

  // Cancels the reads ahead that have not begun. They are not counted.
  void Withdraw();
  // Drops the experts in [begin, end) that were read ahead.
  void DropRange(int64_t begin, int64_t end);
  // Drops the expert that was read ahead first, among those whose read has ended. Returns false if
  // there is none.
  bool DropOldest();
  // Drops the expert if it was read ahead.
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
  std::vector<int64_t> ahead_;  // the experts that Holder::kPrefetch holds; the oldest is the first
  RecentWaste waste_;
  PrefetchCounters counters_;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_EXPERT_PREFETCHER_H_
