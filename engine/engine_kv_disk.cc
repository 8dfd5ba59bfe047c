#include "engine/engine_kv_disk.h"

#include <utility>

#include "engine/kv/kv_disk_file.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {
namespace {

// This time is limited, because a server that stops waits for the writes.
constexpr absl::Duration kSpillTime = absl::Seconds(10);

}  // namespace

absl::StatusOr<std::unique_ptr<EngineKvDisk>> EngineKvDisk::Open(const EngineOptions& options,
                                                                 KvCache* cache,
                                                                 const base::Clock* clock) {
  std::unique_ptr<EngineKvDisk> made(new EngineKvDisk(cache));
  if (options.kv_disk_path.empty()) return made;
  const KvDiskOptions disk = {.limit_bytes = options.kv_disk_bytes,
                              .block_bytes = static_cast<int64_t>(cache->block_bytes()),
                              .identity = options.cache_seed};
  // Check the size before the file is created.
  RETURN_IF_ERROR(PlanKvDisk(disk.limit_bytes, disk.block_bytes).status());
  ASSIGN_OR_RETURN(std::unique_ptr<KvDiskFile> file, KvDiskFile::Open(options.kv_disk_path));
  ASSIGN_OR_RETURN(made->disk_, KvDisk::Open(std::move(file), disk, clock));
  made->restores_ = std::make_unique<KvRestores>(cache, made->disk_.get());
  cache->SetDisk(made->disk_.get());
  return made;
}

EngineKvDisk::~EngineKvDisk() {
  restores_.reset();
  cache_->SetDisk(nullptr);
}

void EngineKvDisk::OnRead(std::function<void()> callback) {
  if (disk_ != nullptr) disk_->OnRead(std::move(callback));
}

void EngineKvDisk::Read(EngineStats* stats) {
  if (disk_ == nullptr) return;
  stats->kv_disk = disk_->stats();
  stats->kv_restores = restores_->stats();
  const int64_t blocks = stats->kv_disk->read_blocks + stats->kv_disk->written_blocks;
  if (std::exchange(blocks_seen_, blocks) != blocks) ++stats->progress;
}

void EngineKvDisk::SpillAll() {
  if (disk_ == nullptr) return;
  restores_->EndAll();
  cache_->SpillCached(kSpillTime);
}

absl::StatusOr<EngineKv> EngineKv::Open(const Model& model, const EngineOptions& options,
                                        const base::Clock* clock) {
  EngineKv kv;
  ASSIGN_OR_RETURN(kv.cache,
                   KvCache::Create(model.kv_specs(), {.memory_bytes = options.kv_memory_bytes,
                                                      .seed = options.cache_seed,
                                                      .backend = model.backend()}));
  ASSIGN_OR_RETURN(kv.disk, EngineKvDisk::Open(options, kv.cache.get(), clock));
  return kv;
}

}  // namespace tidepool::engine
