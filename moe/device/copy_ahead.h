// CopyAhead: the experts that were copied to a device because of hints, and that no layer has
// requested yet. It does for a device what ExpertPrefetcher does for the host.
#ifndef TIDEPOOL_MOE_DEVICE_COPY_AHEAD_H_
#define TIDEPOOL_MOE_DEVICE_COPY_AHEAD_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "moe/device/device_buffers.h"
#include "moe/expert_prefetcher.h"
#include "moe/offload_control.h"

namespace tidepool::moe {

// Engine thread only.
class CopyAhead {
 public:
  struct Options {
    Prefetch prefetch = Prefetch::kOn;
    int limit = 0;  // maximum number of buffers for experts that were copied ahead
  };

  // `buffers` must outlive this object.
  CopyAhead(DeviceBuffers* buffers, const Options& options);

  // Returns whether hints may have an effect: prefetch is on, some experts are not on the device,
  // and few of the recent copies were not used.
  bool WantsHints() const;
  bool HasRoom() const { return ahead_.size() < limit_; }
  size_t size() const { return ahead_.size(); }
  // Adds an expert whose copy has begun.
  void Add(int64_t expert);

  // If the expert was copied ahead, counts it as used, because its layer requests it now. Requires:
  // another holder keeps the expert.
  void UseIfAhead(int64_t expert);
  // Counts bytes that are copied on demand. The share of waste needs them.
  void NoteDemand(int64_t bytes) { waste_.AddUsed(bytes); }
  // Drops the experts in [begin, end) that were copied ahead.
  void DropRange(int64_t begin, int64_t end);
  // Drops the expert that was copied ahead first. Returns false if there is none.
  bool DropOldest();
  // Drops the expert if it was copied ahead.
  void DropIfAhead(int64_t expert);

  void set_prefetch(Prefetch prefetch) { prefetch_ = prefetch; }
  Prefetch prefetch() const { return prefetch_; }
  int64_t used() const { return used_; }  // number of experts that were copied ahead and then used

 private:
  void Forget(int64_t expert);

  DeviceBuffers* const buffers_;
  const size_t limit_;
  Prefetch prefetch_;
  std::vector<int64_t> ahead_;  // the experts that Holder::kPrefetch holds; the oldest is the first
  RecentWaste waste_;
  int64_t used_ = 0;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_DEVICE_COPY_AHEAD_H_
