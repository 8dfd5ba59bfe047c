// RecentWaste: which part of what was read lately had been read ahead in vain, and whether that is
// too much to go on with reading ahead.
#ifndef TIDEPOOL_MOE_RECENT_WASTE_H_
#define TIDEPOOL_MOE_RECENT_WASTE_H_

#include <cstdint>

namespace tidepool::moe {

// Thread-compatible. Counts are halved whenever they cover two windows, so that they tell of the
// last one or two, the newer the more.
//
// Fewer records than a window's mislead: where each is in vain with a chance of 6 %, 8 % of 2,000
// hardly ever are. It is also many times what may be on its way when the limit is passed (half of
// the staging records), so that what comes on top of the limit is small: of as much as 16 windows
// that are read on end, whatever was read before, at most a tenth is read in vain. More records
// would tell of a workload that is over: a window is some ten tokens of Qwen3-30B at half its
// experts, which a disk gives in a second or two.
class RecentWaste {
 public:
  static constexpr int64_t kWindowRecords = 1024;
  static constexpr int64_t kMostPercent = 8;

  // record_bytes: of the largest.
  explicit RecentWaste(int64_t record_bytes) : window_bytes_(kWindowRecords * record_bytes) {}

  // Read on demand, or read ahead and then asked for.
  void AddUsed(int64_t bytes) { Add(bytes, 0); }
  // Read ahead, and not asked for.
  void AddWasted(int64_t bytes) { Add(bytes, bytes); }

  bool IsTooMuch() const { return wasted_bytes_ * 100 > read_bytes_ * kMostPercent; }

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

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_RECENT_WASTE_H_
