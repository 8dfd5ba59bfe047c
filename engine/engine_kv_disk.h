// EngineKvDisk: the engine's use of --kv-disk, from opening the file to the final writes.
#ifndef TIDEPOOL_ENGINE_ENGINE_KV_DISK_H_
#define TIDEPOOL_ENGINE_ENGINE_KV_DISK_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/engine_options.h"
#include "engine/engine_stats.h"
#include "engine/kv/kv_cache.h"
#include "engine/kv/kv_disk.h"
#include "engine/scheduler/kv_restores.h"
#include "kernels/base/clock.h"

namespace tidepool::engine {

// Engine thread only.
class EngineKvDisk {
 public:
  // If options have no path, the other calls do nothing. The cache and the clock outlive this
  // object. Errors are the same as of KvDiskFile::Open and KvDisk::Open.
  static absl::StatusOr<std::unique_ptr<EngineKvDisk>> Open(const EngineOptions& options,
                                                            KvCache* cache,
                                                            const base::Clock* clock);
  ~EngineKvDisk();
  EngineKvDisk(const EngineKvDisk&) = delete;
  EngineKvDisk& operator=(const EngineKvDisk&) = delete;

  // For the scheduler. Null without a disk.
  KvRestores* restores() { return restores_.get(); }
  // The callback runs on another thread when there is something to plan. Set it once, before the
  // first plan.
  void OnRead(std::function<void()> callback);
  // Sets the fields of `stats` about the disk.
  void Read(EngineStats* stats);
  // Call it at shutdown. Writes all cached KV to the disk, or as much as is possible in a few
  // seconds. Requires: no lease holds a block.
  void SpillAll();

 private:
  explicit EngineKvDisk(KvCache* cache) : cache_(cache) {}

  KvCache* const cache_;
  std::unique_ptr<KvDisk> disk_;
  std::unique_ptr<KvRestores> restores_;
  int64_t blocks_seen_ = 0;  // blocks read and written, at the latest Read
};

// KV in memory, and the disk that extends it.
struct EngineKv {
  std::unique_ptr<KvCache> cache;
  std::unique_ptr<EngineKvDisk> disk;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_ENGINE_KV_DISK_H_
