#include "engine/kv/block_pool.h"

#include <algorithm>

#include "kernels/base/check.h"

namespace tidepool::engine {

BlockPool::BlockPool(int32_t blocks) : blocks_(blocks) {
  unused_.reserve(blocks);
  for (int32_t block = blocks - 1; block >= 0; --block) unused_.push_back(block);
}

int32_t BlockPool::Allocate() {
  int32_t block = oldest_;
  if (!unused_.empty()) {
    block = unused_.back();
    unused_.pop_back();
  } else if (block != kNoBlock) {
    Unlink(block);
    index_.erase(blocks_[block].key);
    blocks_[block].indexed = false;
  } else {
    return kNoBlock;
  }
  touched_ = std::max(touched_, block + 1);
  blocks_[block].holders = 1;
  return block;
}

void BlockPool::AddHolder(int32_t block) {
  Block& entry = blocks_[block];
  CHECK(entry.holders > 0 || entry.indexed) << "block " << block << " holds nothing";
  if (entry.holders == 0) Unlink(block);
  ++entry.holders;
}

void BlockPool::Release(int32_t block) {
  Block& entry = blocks_[block];
  CHECK_GT(entry.holders, 0) << "block " << block;
  if (--entry.holders > 0) return;
  if (entry.indexed) {
    Link(block);
  } else {
    unused_.push_back(block);
  }
}

void BlockPool::Index(int32_t block, const BlockKey& key, absl::Span<const int32_t> tokens) {
  Block& entry = blocks_[block];
  CHECK(entry.holders > 0 && !entry.indexed) << "block " << block;
  if (!index_.emplace(key, block).second) return;
  entry.indexed = true;
  entry.key = key;
  entry.tokens.assign(tokens.begin(), tokens.end());
}

int32_t BlockPool::Find(const BlockKey& key, absl::Span<const int32_t> tokens) const {
  const auto found = index_.find(key);
  if (found == index_.end()) return kNoBlock;
  return absl::MakeConstSpan(blocks_[found->second].tokens) == tokens ? found->second : kNoBlock;
}

std::vector<int32_t> BlockPool::CachedBlocks() const {
  std::vector<int32_t> blocks;
  blocks.reserve(cached_);
  for (int32_t block = newest_; block != kNoBlock; block = blocks_[block].older) {
    blocks.push_back(block);
  }
  return blocks;
}

void BlockPool::Link(int32_t block) {
  blocks_[block].older = newest_;
  blocks_[block].newer = kNoBlock;
  (newest_ == kNoBlock ? oldest_ : blocks_[newest_].newer) = block;
  newest_ = block;
  ++cached_;
}

void BlockPool::Unlink(int32_t block) {
  const Block& entry = blocks_[block];
  (entry.older == kNoBlock ? oldest_ : blocks_[entry.older].newer) = entry.newer;
  (entry.newer == kNoBlock ? newest_ : blocks_[entry.newer].older) = entry.older;
  --cached_;
}

}  // namespace tidepool::engine
