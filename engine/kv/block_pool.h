// BlockPool: counts the holders of each block of an arena. It also finds blocks with a given token
// prefix, so that a later sequence can reuse them. It knows only the numbers of blocks, not their
// memory.
#ifndef TIDEPOOL_ENGINE_KV_BLOCK_POOL_H_
#define TIDEPOOL_ENGINE_KV_BLOCK_POOL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "engine/kv/block_hash.h"

namespace tidepool::engine {

// Means that there is no block: none is free, none was found, or the block is outside of a window.
inline constexpr int32_t kNoBlock = -1;

// Identifies a block's content: the last tokens of a prefix, for one group of layers.
struct BlockKey {
  BlockHash hash;
  int group = 0;

  friend bool operator==(const BlockKey&, const BlockKey&) = default;
  template <typename H>
  friend H AbslHashValue(H state, const BlockKey& key) {
    return H::combine(std::move(state), key.hash, key.group);
  }
};

// How useful a block is. The holder passes this value when it releases the block.
enum class BlockValue : uint8_t {
  kNone,   // not cached, unless the block is wanted or was once released with another value
  kSpare,  // a checkpoint where no session ends and no prompts are known to differ
  // outside of the sequence's window, and not part of a prompt; useful only to continue an earlier
  // part of the same output
  kPassedOutput,
  kPassed,    // outside of the sequence's window; no known boundary needs it
  kBoundary,  // needed at a boundary: a position where sequences end, fork or continue
};

// What a new block is for.
enum class BlockUse : uint8_t {
  kNeeded,
  kSpare,  // to be released with BlockValue::kSpare
};

// Engine thread only. A block is unused, held (by one or more holders), or cached (not held, but
// indexed). If no block is unused, Allocate evicts a cached block. There are four classes of
// cached blocks. In each class, the block that was released first is evicted first. Allocate
// chooses the class in this order:
// - spare blocks
// - passed blocks, if they are at least 1 / kPassedShare of all cached blocks. Of these, blocks
//   with passed output are evicted first.
// - blocks of boundaries, then passed blocks
// - wanted blocks: blocks that a running sequence has asked to keep (see Want)
// Large because holders, content and the order of eviction change together.
class BlockPool {
 public:
  explicit BlockPool(int32_t blocks);

  // Returns a block with one holder, or kNoBlock. Blocks that were used before are preferred to
  // blocks that were never used, so that the arena needs little memory. Cached blocks are used
  // last. For kSpare, evicts only spare blocks. It evicts one even before unused blocks are taken,
  // if spare blocks are at least 1 / kSpareShare of all blocks.
  int32_t Allocate(BlockUse use = BlockUse::kNeeded);
  // Adds a holder. Requires: the block is held or cached.
  void AddHolder(int32_t block);
  // Removes a holder. A block keeps the highest value with which it was ever released until it is
  // evicted. Requires: the block is held.
  void Release(int32_t block, BlockValue value = BlockValue::kBoundary);

  // From now on, a cached block with this content is evicted after all others. There may be no such
  // block yet.
  void Want(const BlockKey& key);
  // Undoes one call of Want, and gives the block this value, unless its value is higher. When all
  // calls of Want are undone, the block is treated as if it were released now.
  void Unwant(const BlockKey& key, BlockValue value = BlockValue::kBoundary);

  // Records that one more sequence begins with this content. Does nothing if there is no such
  // block.
  void AddStart(const BlockKey& key);
  // Lowers the value of a block to kSpare, unless the value is already kNone or at least two
  // sequences began with the block. Does nothing if there is no such block.
  void Supersede(const BlockKey& key);

  // Adds a held block that contains these tokens to the index. Does nothing if the index has
  // another block with the same content.
  void Index(int32_t block, const BlockKey& key, absl::Span<const int32_t> tokens);
  // Returns the block with this content, or kNoBlock. Compares the tokens of this block, so that a
  // hash collision, accidental or constructed, never shares KV. The caller must compare the tokens
  // of all blocks before it in the same way.
  int32_t Find(const BlockKey& key, absl::Span<const int32_t> tokens) const;
  // Returns whether a block is indexed under this key. Its tokens may differ.
  bool Knows(const BlockKey& key) const { return index_.contains(key); }
  // The key and the tokens of an indexed block.
  const BlockKey& KeyOf(int32_t block) const { return blocks_[block].key; }
  absl::Span<const int32_t> TokensOf(int32_t block) const { return blocks_[block].tokens; }
  // The highest value with which an indexed block was released.
  BlockValue ValueOf(int32_t block) const { return blocks_[block].value; }

  // The cached block that Allocate would evict next, or kNoBlock.
  int32_t NextEvicted(BlockUse use = BlockUse::kNeeded) const;
  // All cached blocks, the most valuable class first. In each class, the blocks are in the reverse
  // order of eviction.
  std::vector<int32_t> CachedBlocks() const;

  static constexpr int32_t kPassedShare = 4;
  static constexpr int32_t kSpareShare = 4;

  int32_t total() const { return static_cast<int32_t>(blocks_.size()); }
  // Number of blocks that Allocate can return: the unused and the cached ones.
  int32_t free() const { return static_cast<int32_t>(unused_.size()) + cached(); }
  int32_t cached() const {
    return lists_[kSpare].size + lists_[kPassed].size + lists_[kBoundary].size +
           lists_[kWanted].size;
  }
  // Number of indexed blocks of a group.
  int32_t indexed(int group) const {
    return static_cast<size_t>(group) < indexed_.size() ? indexed_[group] : 0;
  }
  // Number of free blocks that no running sequence has asked to keep (see Want).
  int32_t free_unwanted() const { return free() - lists_[kWanted].size; }
  // Number of blocks that were never held.
  int32_t untouched() const { return total() - touched_; }
  int32_t holders(int32_t block) const { return blocks_[block].holders; }

 private:
  enum Class : uint8_t { kSpare, kPassed, kBoundary, kWanted, kClasses };

  struct Block {
    int32_t holders = 0;
    bool indexed = false;
    BlockValue value = BlockValue::kNone;  // the highest value since the block was indexed
    int32_t starts = 0;                    // number of calls of AddStart since then
    // The class of a cached block, and its links in the list of this class.
    Class list = kPassed;
    int32_t older = kNoBlock;
    int32_t newer = kNoBlock;
    BlockKey key;
    std::vector<int32_t> tokens;  // the block's tokens, if it is indexed
  };

  // The cached blocks of one class, in the order of eviction.
  struct List {
    int32_t oldest = kNoBlock;
    int32_t newest = kNoBlock;
    int32_t size = 0;
  };

  int32_t Victim() const;
  void Keep(int32_t block);    // caches a block without holders, or forgets it
  void Forget(int32_t block);  // removes the block from the index
  void Link(int32_t block);    // adds the block to the list of its class
  void Unlink(int32_t block);  // removes the block from its list

  std::vector<Block> blocks_;
  std::vector<int32_t> unused_;  // used as a stack
  absl::flat_hash_map<BlockKey, int32_t> index_;
  absl::flat_hash_map<BlockKey, int32_t> wanted_;  // number of calls of Want minus calls of Unwant
  std::array<List, kClasses> lists_;
  std::vector<int32_t> indexed_;  // by group: number of indexed blocks
  int32_t touched_ = 0;           // the blocks [0, touched_) were held at least once
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_KV_BLOCK_POOL_H_
