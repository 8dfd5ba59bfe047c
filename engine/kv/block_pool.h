// BlockPool: which blocks of an arena are in use, by how many holders, and which of them hold a
// token prefix that a later sequence can reuse. Knows ids only, no memory.
#ifndef TIDEPOOL_ENGINE_KV_BLOCK_POOL_H_
#define TIDEPOOL_ENGINE_KV_BLOCK_POOL_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "engine/kv/block_hash.h"

namespace tidepool::engine {

// "No block": none is free, none is found, or the block is out of a window's reach.
inline constexpr int32_t kNoBlock = -1;

// The content of a block: a prefix's last tokens, for one group of layers.
struct BlockKey {
  BlockHash hash;
  int group = 0;

  friend bool operator==(const BlockKey&, const BlockKey&) = default;
  template <typename H>
  friend H AbslHashValue(H state, const BlockKey& key) {
    return H::combine(std::move(state), key.hash, key.group);
  }
};

// Engine thread only. A block is unused, held (by one or more holders), or cached (not held, but
// indexed). When no block is unused, cached ones are reused, the least recently released first.
class BlockPool {
 public:
  explicit BlockPool(int32_t blocks);

  // A block held once, or kNoBlock. Blocks that were in use before come first, so that the arena
  // touches no more memory than it needs; cached blocks come last.
  int32_t Allocate();
  // One more holder. Requires: held or cached.
  void AddHolder(int32_t block);
  // One holder less. Requires: held.
  void Release(int32_t block);

  // Makes a held block findable, whose tokens these are. Does nothing when another block already
  // holds this content.
  void Index(int32_t block, const BlockKey& key, absl::Span<const int32_t> tokens);
  // The block with this content, or kNoBlock. The block's own tokens are compared, so that a hash
  // collision, accidental or sought, does not share KV. The blocks before it are the caller's to
  // compare in turn.
  int32_t Find(const BlockKey& key, absl::Span<const int32_t> tokens) const;
  // Whether a block is indexed under this key, with any tokens.
  bool Knows(const BlockKey& key) const { return index_.contains(key); }
  // What an indexed block holds.
  const BlockKey& KeyOf(int32_t block) const { return blocks_[block].key; }
  absl::Span<const int32_t> TokensOf(int32_t block) const { return blocks_[block].tokens; }

  // The cached block that Allocate would reuse, or kNoBlock.
  int32_t NextEvicted() const { return unused_.empty() ? oldest_ : kNoBlock; }
  // All cached blocks, the latest released first.
  std::vector<int32_t> CachedBlocks() const;

  int32_t total() const { return static_cast<int32_t>(blocks_.size()); }
  // What Allocate can give: unused and cached blocks.
  int32_t free() const { return static_cast<int32_t>(unused_.size()) + cached_; }
  int32_t cached() const { return cached_; }
  // Blocks that nobody ever held.
  int32_t untouched() const { return total() - touched_; }
  bool IsHeld(int32_t block) const { return blocks_[block].holders > 0; }
  int32_t holders(int32_t block) const { return blocks_[block].holders; }

 private:
  struct Block {
    int32_t holders = 0;
    bool indexed = false;
    // Neighbours in the list of cached blocks, oldest first.
    int32_t older = kNoBlock;
    int32_t newer = kNoBlock;
    BlockKey key;
    std::vector<int32_t> tokens;  // of what is indexed
  };

  void Link(int32_t block);    // as the newest cached block
  void Unlink(int32_t block);  // out of the list

  std::vector<Block> blocks_;
  std::vector<int32_t> unused_;  // a stack
  absl::flat_hash_map<BlockKey, int32_t> index_;
  int32_t cached_ = 0;
  int32_t touched_ = 0;  // [0, touched_) were held once
  int32_t oldest_ = kNoBlock;
  int32_t newest_ = kNoBlock;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_KV_BLOCK_POOL_H_
