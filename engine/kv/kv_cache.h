// KvCache: stores the keys and values of all sequences in blocks of one arena with a byte budget.
// Its index finds the blocks of a token prefix that was computed before.
//
//   KvLease lease = cache->NewLease(salt);
//   lease.AttachPrefix(tokens);                               // slots() of them are cached
//   std::optional<KvReservation> space = lease.Reserve(40);   // empty: no blocks are left
//   ... a forward pass writes slots [slots(), 40) through lease.Tables(40) ...
//   space->Keep();
//   lease.Commit(absl::MakeSpan(tokens).first(40));           // final: full blocks can be found
//
// A group is a set of layers with equal KvSpec. It has its own block table. A block holds
// kKvBlockTokens tokens of one group's layers. All groups share one pool, so their blocks have the
// same size. The layers of each spec are divided into groups such that little memory is wasted.
//
// A prefix can be reused up to a boundary between two blocks. For this, full groups need all blocks
// before the boundary, and window groups need the last blocks before it (the tail of the boundary).
// A boundary is known in four cases: a sequence ends there; a prompt ends there; a sequence
// attached a prefix up to there; or a sequence's tokens differ from the cached ones after it. The
// tails of known boundaries are cached as long as the blocks of full groups. Other blocks outside
// of the window are cached as long as there is room (BlockPool).
#ifndef TIDEPOOL_ENGINE_KV_KV_CACHE_H_
#define TIDEPOOL_ENGINE_KV_KV_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "engine/kv/block_hash.h"
#include "engine/kv/block_pool.h"
#include "engine/kv/kv_disk.h"
#include "engine/kv/kv_layout.h"
#include "engine/model/kv_spec.h"

namespace tidepool::engine {

class KvCache;
class KvLease;

// Engine thread only. Blocks that a plan reserved for a lease. The destructor returns the blocks,
// unless Keep was called.
class KvReservation {
 public:
  KvReservation(KvReservation&& other) noexcept;
  KvReservation& operator=(KvReservation&&) = delete;
  ~KvReservation();
  // The lease keeps the blocks.
  void Keep() { lease_ = nullptr; }

 private:
  friend class KvLease;
  KvReservation(KvLease* lease, int64_t blocks) : lease_(lease), blocks_(blocks) {}

  KvLease* lease_;
  int64_t blocks_;  // number of blocks that the lease's tables had before
};

// A prefix whose KV is in memory or on the disk.
struct KvPrefix {
  int64_t memory_tokens = 0;  // number of tokens that AttachPrefix would attach now
  // number of tokens that it would attach if the blocks `on_disk` were in memory, too
  int64_t tokens = 0;
  struct Block {
    BlockKey key;
    int64_t index = 0;  // number of the block in the sequence, from 0
  };
  // ascending; empty if blocks on the disk do not make the prefix longer
  std::vector<Block> on_disk;
  std::vector<int32_t> in_memory;  // the blocks of the prefix that are in memory
};

// Engine thread only. The blocks of one sequence. The destructor releases them. All calls must pass
// the tokens of this sequence, to which tokens may only be appended. So each block is hashed once,
// even if the sequence is preempted and admitted again. Must not outlive its cache, and must not
// move while it has a reservation.
class KvLease {
 public:
  KvLease() = default;  // has no cache; may only be destroyed or assigned to
  KvLease(KvLease&& other) noexcept { *this = std::move(other); }
  KvLease& operator=(KvLease&& other) noexcept;
  ~KvLease() { Reset(); }

  // Number of slots whose KV is final.
  int64_t slots() const { return slots_; }
  // Number of blocks that the lease holds, over all groups.
  int64_t blocks_held() const;
  // Number of blocks that only this lease holds.
  int64_t blocks_held_alone() const;

  // Attaches the longest prefix of `tokens` that is cached in every group. It consists of whole
  // blocks, and excludes the last token, which must always be computed. Returns slots(). As long as
  // this lease exists, other sequences can find the prefix, unless its memory is needed. Requires:
  // slots() is 0.
  int64_t AttachPrefix(absl::Span<const int32_t> tokens);
  // If there is a disk, marks the attached blocks as used in the disk's index, so that the disk
  // keeps them.
  void NoteUse() const;

  // Returns the number of tokens that AttachPrefix would attach, without attaching them. Requires:
  // slots() is 0.
  int64_t CachedTokens(absl::Span<const int32_t> tokens);

  // Like CachedTokens, including blocks on the disk. Requires: slots() is 0.
  KvPrefix FindPrefix(absl::Span<const int32_t> tokens);

  // The hash of block number `block` of `tokens`. Requires: the block is full.
  const BlockHash& HashOf(absl::Span<const int32_t> tokens, int64_t block);

  // Reserves blocks for the slots [0, slots). If there are not enough blocks, returns nullopt and
  // changes nothing.
  std::optional<KvReservation> Reserve(int64_t slots);

  // Declares that `tokens`, counted from slot 0, are final, and that their KV is written. Full
  // blocks enter the index. A window group releases the blocks that are not needed to continue
  // after the last full block. Requires: space was reserved, and `tokens` begin with the tokens of
  // earlier commits.
  void Commit(absl::Span<const int32_t> tokens);

  // Returns the block table of each group for the slots [0, slots). Valid until the next Reserve,
  // Commit or Reset. Requires: the slots are reserved.
  std::vector<absl::Span<const int32_t>> Tables(int64_t slots) const;

  // Releases all blocks, so that slots() becomes 0. AttachPrefix may be called again.
  void Reset();

 private:
  friend class KvCache;
  friend class KvReservation;
  KvLease(KvCache* cache, const BlockHash& root, int64_t prompt_blocks);

  // The tails of one or more boundaries. The pool is asked to keep their blocks (BlockPool::Want).
  struct Tail {
    int64_t first_boundary = 0;  // number of blocks before the boundary
    int64_t last_boundary = 0;
  };
  // How many blocks of a prefix are cached.
  struct Match {
    int64_t usable = 0;
    // blocks in the full groups; the same as `usable` if there are no full groups
    int64_t full = 0;
  };

  int64_t table_blocks() const { return tables_.empty() ? 0 : tables_[0].size(); }
  void ShrinkTables(int64_t blocks);
  void FreeBlocksOutOfReach();
  Match FindBlocks(absl::Span<const int32_t> tokens, bool with_disk);
  void WantTail(const Tail& tail);
  void UnwantTails(int64_t block);

  KvCache* cache_ = nullptr;
  BlockHash root_;
  int64_t prompt_blocks_ = 0;  // number of full blocks of the prompt
  std::vector<Tail> tails_;
  int64_t slots_ = 0;
  // hashes of the full blocks, from the first; computed when needed
  std::vector<BlockHash> hashes_;
  std::vector<std::vector<int32_t>> tables_;  // for each group; all tables have the same length
};

struct KvCacheOptions {
  size_t memory_bytes = 0;
  std::string seed;  // seed of block hashes
};

// Engine thread only. The memory is only reserved address space until a block is written.
class KvCache {
 public:
  // If not even one token fits, returns INVALID_ARGUMENT, which names --kv-memory.
  static absl::StatusOr<std::unique_ptr<KvCache>> Create(const std::vector<KvSpec>& layers,
                                                         const KvCacheOptions& options);
  ~KvCache();
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  const KvView& view() const { return view_; }
  // `prompt_tokens` is the number of tokens before the sequence's output.
  KvLease NewLease(absl::string_view salt,
                   int64_t prompt_tokens = std::numeric_limits<int64_t>::max());

  // From now on, evicted blocks are written to the disk, and prefixes are also searched there. The
  // disk must outlive the cache, unless SetDisk(nullptr) is called before.
  void SetDisk(KvDisk* disk) { disk_ = disk; }
  // Adds a block that was read from the disk to the index, with one holder. Returns kNoBlock if no
  // block is free. Requires: `bytes` has block_bytes() bytes.
  int32_t Put(const BlockKey& key, absl::Span<const int32_t> tokens,
              absl::Span<const std::byte> bytes);
  // Add and remove a holder of a block. Leases hold blocks without calling these.
  void Hold(int32_t block) { pool_.AddHolder(block); }
  void Release(int32_t block) { pool_.Release(block); }
  // Number of holders of a block, including leases.
  int32_t holders(int32_t block) const { return pool_.holders(block); }
  // Records a prefix as released most recently. `last` is the hash of its last block.
  void NoteReleased(const BlockHash& last);
  // Writes cached blocks to the disk until all are written or `patience` has passed, the most
  // valuable ones first (BlockPool::CachedBlocks). Requires: there is a disk.
  void SpillCached(absl::Duration patience);

  int64_t blocks_total() const { return pool_.total(); }
  int64_t blocks_free() const { return pool_.free(); }
  int64_t blocks_cached() const { return pool_.cached(); }
  // number of blocks that were never held
  int64_t blocks_untouched() const { return pool_.untouched(); }
  size_t block_bytes() const { return block_bytes_; }
  int groups() const { return static_cast<int>(specs_.size()); }

  // Maximum number of blocks that one sequence holds while `slots` slots are computed, if a step
  // has at most `step` of its rows.
  int64_t BlocksFor(int64_t slots, int64_t step) const;

  // Total number of blocks for which leases have computed hashes.
  int64_t blocks_hashed() const { return blocks_hashed_; }

  // The prefixes that were released most recently and are still in memory or on the disk. The
  // latest is the first. Returns the digest of each prefix's last block, and at most min(limit,
  // kRecentPrefixes) digests.
  static constexpr size_t kRecentPrefixes = 256;
  std::vector<uint64_t> RecentPrefixes(size_t limit) const;

 private:
  friend class KvLease;
  KvCache(std::vector<KvSpec> specs, KvView view, size_t block_bytes, int32_t blocks);
  // The first slot that a row at `slot` can see in this group.
  int64_t FirstVisible(int group, int64_t slot) const;
  // The first block that this group needs if a sequence continues after its first `block` blocks.
  int64_t FirstOfTail(int group, int64_t block) const {
    return FirstVisible(group, block * kernels::kKvBlockTokens) / kernels::kKvBlockTokens;
  }
  bool IsThere(const BlockKey& key, absl::Span<const int32_t> tokens, bool with_disk) const;
  bool IsKnown(const BlockKey& key, bool with_disk) const;
  int32_t Allocate();
  absl::Span<const std::byte> BytesOf(int32_t block) const;

  std::vector<KvSpec> specs_;  // by group
  bool has_full_group_ = false;
  KvView view_;
  size_t block_bytes_;
  std::string seed_;
  BlockPool pool_;
  KvDisk* disk_ = nullptr;
  std::deque<BlockHash> recent_;  // the latest is the first; no duplicates
  int64_t blocks_hashed_ = 0;
  std::byte* memory_ = nullptr;  // the mapped memory of all blocks
  size_t memory_bytes_ = 0;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_KV_KV_CACHE_H_
