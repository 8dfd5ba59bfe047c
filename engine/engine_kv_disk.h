// EngineKvDisk: the engine's end of --kv-disk, from opening the file to what is written at the end.
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
  // Of options without a path: nothing, and the other calls do nothing. The cache and clock outlive
  // it. Errors: KvDiskFile::Open's and KvDisk::Open's.
  static absl::StatusOr<std::unique_ptr<EngineKvDisk>> Open(const EngineOptions& options,
                                                            KvCache* cache,
                                                            const base::Clock* clock);
  ~EngineKvDisk();
  EngineKvDisk(const EngineKvDisk&) = delete;
  EngineKvDisk& operator=(const EngineKvDisk&) = delete;

  // For the scheduler; null without a disk.
  KvRestores* restores() { return restores_.get(); }
  // Called from another thread when there is something to plan. Set once, before the first plan.
  void OnRead(std::function<void()> callback);
  // Writes `stats`' fields about the disk.
  void Read(EngineStats* stats);
  // Before the end: all that is cached goes to the disk, as far as a few seconds do for it.
  // Requires: no lease holds a block.
  void SpillAll();

 private:
  explicit EngineKvDisk(KvCache* cache) : cache_(cache) {}

  KvCache* const cache_;
  std::unique_ptr<KvDisk> disk_;
  std::unique_ptr<KvRestores> restores_;
  int64_t blocks_seen_ = 0;  // read and written, as of the latest Read
};

// KV in memory, and on the disk beneath it.
struct EngineKv {
  std::unique_ptr<KvCache> cache;
  std::unique_ptr<EngineKvDisk> disk;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_ENGINE_KV_DISK_H_
