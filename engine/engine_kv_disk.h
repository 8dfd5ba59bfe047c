// EngineKvDisk: opens the file of --kv-disk, reports its statistics, and writes the cached KV when
// the engine ends. kv/kv_blocks.h has the writes before that.
#ifndef TIDEPOOL_ENGINE_ENGINE_KV_DISK_H_
#define TIDEPOOL_ENGINE_ENGINE_KV_DISK_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/engine_options.h"
#include "engine/engine_stats.h"
#include "engine/kv/kv_cache.h"
#include "engine/kv/kv_disk.h"
#include "engine/model/model.h"
#include "engine/scheduler/kv_restores.h"
#include "kernels/base/clock.h"

namespace tidepool::engine {

// Engine thread only.
class EngineKvDisk {
 public:
  // Opens the disk. If `options` has no path, all other functions do nothing. `cache` and `clock`
  // must outlive this object. Returns the errors of KvDiskFile::Open and KvDisk::Open.
  static absl::StatusOr<std::unique_ptr<EngineKvDisk>> Open(const EngineOptions& options,
                                                            KvCache* cache,
                                                            const base::Clock* clock);
  ~EngineKvDisk();
  EngineKvDisk(const EngineKvDisk&) = delete;
  EngineKvDisk& operator=(const EngineKvDisk&) = delete;

  // For the scheduler. Null if there is no disk.
  KvRestores* restores() { return restores_.get(); }
  // Sets a callback that is called on another thread when a read has ended. The scheduler should
  // then plan again. Must be called once, before the first plan.
  void OnRead(std::function<void()> callback);
  // Sets those fields of `stats` that describe the disk.
  void Read(EngineStats* stats);
  // Writes all cached KV to the disk, or as much as is possible in a few seconds. Called at
  // shutdown. Requires: no lease holds a block.
  void SpillAll();

 private:
  explicit EngineKvDisk(KvCache* cache) : cache_(cache) {}

  KvCache* const cache_;
  std::unique_ptr<KvDisk> disk_;
  std::unique_ptr<KvRestores> restores_;
  // number of blocks that were read and written before the latest call of Read()
  int64_t blocks_seen_ = 0;
};

// The KV cache in memory, and the disk that extends it.
struct EngineKv {
  // Returns the errors of KvCache::Create and EngineKvDisk::Open. `clock` and the model must
  // outlive the result.
  static absl::StatusOr<EngineKv> Open(const Model& model, const EngineOptions& options,
                                       const base::Clock* clock);

  std::unique_ptr<KvCache> cache;
  std::unique_ptr<EngineKvDisk> disk;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_ENGINE_KV_DISK_H_
