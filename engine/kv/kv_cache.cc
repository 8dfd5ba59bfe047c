#include "engine/kv/kv_cache.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {
namespace {

constexpr int64_t kBlockTokens = kernels::kKvBlockTokens;

}  // namespace

absl::StatusOr<std::unique_ptr<KvCache>> KvCache::Create(const std::vector<KvSpec>& layers,
                                                         const KvCacheOptions& options) {
  CHECK(!layers.empty()) << "a model without layers";
  KvLayout layout = MakeKvLayout(layers);
  const size_t least = layout.block_bytes * KvBlocksFor(layout, kBlockTokens, kBlockTokens);
  if (options.memory_bytes < least) {
    return absl::InvalidArgumentError(
        absl::StrCat("--kv-memory of ", options.memory_bytes,
                     " bytes cannot hold a KV block; this model needs at least ", least,
                     " bytes for ", kBlockTokens, " tokens"));
  }
  const auto blocks = static_cast<int32_t>(KvBlocksIn(options.memory_bytes, layout));
  std::unique_ptr<KvCache> cache(new KvCache(std::move(layout)));
  ASSIGN_OR_RETURN(cache->blocks_, KvBlocks::Create({.blocks = blocks,
                                                     .block_bytes = cache->block_bytes(),
                                                     .state_group = cache->state_groups().first,
                                                     .backend = options.backend}));
  cache->seed_ = options.seed;
  std::byte* const memory = cache->blocks_->memory();
  for (kernels::KvLayer& layer : cache->layout_.view.layers) layer.arena = memory;
  for (std::vector<kernels::StateArray>& arrays : cache->layout_.view.states) {
    for (kernels::StateArray& array : arrays) array.arena = memory;
  }
  return cache;
}

KvCache::KvCache(KvLayout layout) : layout_(std::move(layout)) {
  for (int group = 0; group < groups(); ++group) has_full_group_ |= IsFull(group);
}

KvCache::~KvCache() {
  if (blocks_ == nullptr) return;
  CHECK_EQ(blocks_free(), blocks_total()) << "a lease outlives its KvCache";
}

KvLease KvCache::NewLease(absl::string_view salt, int64_t prompt_tokens) {
  return KvLease(this, HashRoot(seed_, salt), prompt_tokens);
}

int64_t KvCache::FirstOfTail(int group, int64_t block) const {
  if (IsFull(group)) return 0;
  const int64_t next = block * kBlockTokens;
  return std::max<int64_t>(0, next - layout_.specs[group].window + 1) / kBlockTokens;
}

void KvCache::NoteReleased(const BlockHash& last) {
  const auto found = std::find(recent_.begin(), recent_.end(), last);
  if (found != recent_.end()) recent_.erase(found);
  recent_.push_front(last);
  if (recent_.size() > kRecentPrefixes) recent_.pop_back();
}

std::vector<uint64_t> KvCache::RecentPrefixes(size_t limit) const {
  std::vector<uint64_t> digests;
  for (const BlockHash& hash : recent_) {
    if (digests.size() >= limit) break;
    const BlockKey key = {hash, 0};
    if (blocks_->Knows(key, KvPlaces::kMemoryAndDisk)) digests.push_back(hash.low);
  }
  return digests;
}

}  // namespace tidepool::engine
