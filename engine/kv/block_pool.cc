#include "engine/kv/block_pool.h"

#include <algorithm>

#include "kernels/base/check.h"

namespace tidepool::engine {

BlockPool::BlockPool(int32_t blocks) : blocks_(blocks) {
  unused_.reserve(blocks);
  for (int32_t block = blocks - 1; block >= 0; --block) unused_.push_back(block);
}

int32_t BlockPool::Allocate(BlockUse use) {
  int32_t block = NextEvicted(use);
  if (block != kNoBlock) {
    Unlink(block);
    Forget(block);
  } else if (!unused_.empty()) {
    block = unused_.back();
    unused_.pop_back();
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

int32_t BlockPool::NextEvicted(BlockUse use) const {
  const List& spare = lists_[kSpare];
  if (use == BlockUse::kSpare && spare.size * kSpareShare >= total()) return spare.oldest;
  if (!unused_.empty()) return kNoBlock;
  return use == BlockUse::kSpare ? spare.oldest : Victim();
}

int32_t BlockPool::Victim() const {
  if (lists_[kSpare].size > 0) return lists_[kSpare].oldest;
  const List& passed = lists_[kPassed];
  if (passed.size > 0 && passed.size * kPassedShare >= cached()) return passed.oldest;
  for (const Class next : {kBoundary, kPassed, kWanted}) {
    if (lists_[next].size > 0) return lists_[next].oldest;
  }
  return kNoBlock;
}

void BlockPool::Release(int32_t block, BlockValue value) {
  Block& entry = blocks_[block];
  CHECK_GT(entry.holders, 0) << "block " << block;
  entry.value = std::max(entry.value, value);
  if (--entry.holders == 0) Keep(block);
}

void BlockPool::Keep(int32_t block) {
  const Block& entry = blocks_[block];
  if (entry.indexed && (entry.value > BlockValue::kNone || wanted_.contains(entry.key))) {
    Link(block);
    return;
  }
  if (entry.indexed) Forget(block);
  unused_.push_back(block);
}

void BlockPool::Forget(int32_t block) {
  index_.erase(blocks_[block].key);
  blocks_[block].indexed = false;
  --indexed_[blocks_[block].key.group];
}

void BlockPool::Index(int32_t block, const BlockKey& key, absl::Span<const int32_t> tokens) {
  Block& entry = blocks_[block];
  CHECK(entry.holders > 0 && !entry.indexed) << "block " << block;
  if (!index_.emplace(key, block).second) return;
  if (static_cast<size_t>(key.group) >= indexed_.size()) indexed_.resize(key.group + 1);
  ++indexed_[key.group];
  entry.indexed = true;
  entry.value = BlockValue::kNone;
  entry.starts = 0;
  entry.key = key;
  entry.tokens.assign(tokens.begin(), tokens.end());
}

int32_t BlockPool::Find(const BlockKey& key, absl::Span<const int32_t> tokens) const {
  const auto found = index_.find(key);
  if (found == index_.end()) return kNoBlock;
  return absl::MakeConstSpan(blocks_[found->second].tokens) == tokens ? found->second : kNoBlock;
}

void BlockPool::Want(const BlockKey& key) {
  if (++wanted_[key] > 1) return;
  const auto found = index_.find(key);
  if (found == index_.end() || holders(found->second) > 0) return;
  Unlink(found->second);
  Link(found->second);
}

void BlockPool::Unwant(const BlockKey& key, BlockValue value) {
  const auto wanted = wanted_.find(key);
  CHECK(wanted != wanted_.end());
  const bool is_last = --wanted->second == 0;
  if (is_last) wanted_.erase(wanted);
  const auto found = index_.find(key);
  if (found == index_.end()) return;
  Block& entry = blocks_[found->second];
  entry.value = std::max(entry.value, value);
  if (!is_last || entry.holders > 0) return;
  Unlink(found->second);
  Keep(found->second);
}

void BlockPool::AddStart(const BlockKey& key) {
  const auto found = index_.find(key);
  if (found != index_.end()) ++blocks_[found->second].starts;
}

void BlockPool::Supersede(const BlockKey& key) {
  const auto found = index_.find(key);
  if (found == index_.end()) return;
  Block& entry = blocks_[found->second];
  if (entry.value <= BlockValue::kSpare || entry.starts > 1) return;
  const bool is_cached = entry.holders == 0;
  if (is_cached) Unlink(found->second);
  entry.value = BlockValue::kSpare;
  if (is_cached) Link(found->second);
}

std::vector<int32_t> BlockPool::CachedBlocks() const {
  std::vector<int32_t> blocks;
  blocks.reserve(cached());
  for (const Class next : {kWanted, kBoundary, kPassed, kSpare}) {
    for (int32_t block = lists_[next].newest; block != kNoBlock; block = blocks_[block].older) {
      blocks.push_back(block);
    }
  }
  return blocks;
}

void BlockPool::Link(int32_t block) {
  Block& entry = blocks_[block];
  if (wanted_.contains(entry.key)) {
    entry.list = kWanted;
  } else if (entry.value == BlockValue::kBoundary) {
    entry.list = kBoundary;
  } else {
    entry.list = entry.value == BlockValue::kSpare ? kSpare : kPassed;
  }
  List& list = lists_[entry.list];
  // Blocks with passed output are evicted first.
  const bool oldest = entry.list == kPassed && entry.value == BlockValue::kPassedOutput;
  entry.older = oldest ? kNoBlock : list.newest;
  entry.newer = oldest ? list.oldest : kNoBlock;
  (entry.older == kNoBlock ? list.oldest : blocks_[entry.older].newer) = block;
  (entry.newer == kNoBlock ? list.newest : blocks_[entry.newer].older) = block;
  ++list.size;
}

void BlockPool::Unlink(int32_t block) {
  const Block& entry = blocks_[block];
  List& list = lists_[entry.list];
  (entry.older == kNoBlock ? list.oldest : blocks_[entry.older].newer) = entry.newer;
  (entry.newer == kNoBlock ? list.newest : blocks_[entry.newer].older) = entry.older;
  --list.size;
}

}  // namespace tidepool::engine
