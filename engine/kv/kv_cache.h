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
// A boundary is known in four cases: a sequence, a prompt, or an attached prefix ends at it, or a
// sequence's tokens after it differ from the cached tokens. The tails of known boundaries are
// cached as long as the blocks of full groups. Other blocks outside of the window are cached as
// long as there is room (BlockPool).
//
// Layers with a recurrent state have no KV of tokens. A sequence has its states in blocks of the
// same pool (StateLease). Its prefix can be reused up to a boundary that has a checkpoint, which is
// the state after the blocks before it.
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
#include "engine/kv/kv_blocks.h"
#include "engine/kv/kv_disk.h"
#include "engine/kv/kv_layout.h"
#include "engine/kv/state_lease.h"
#include "engine/model/batch.h"
#include "engine/model/kv_spec.h"
#include "kernels/backend.h"

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
  // number of tokens that AttachPrefix would attach if the blocks `on_disk` were in memory, too
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
  // Number of blocks that the lease holds, over all groups, including recurrent states.
  int64_t blocks_held() const;
  // Number of blocks that only this lease holds.
  int64_t blocks_held_alone() const;

  // Attaches the longest prefix of `tokens` that is cached in every group. The prefix consists of
  // whole blocks, and excludes the last token, which must always be computed. Returns slots(). As
  // long as this lease exists, other sequences can find the prefix, unless its memory is needed.
  // Requires: slots() is 0.
  int64_t AttachPrefix(absl::Span<const int32_t> tokens);
  // If there is a disk, marks the attached blocks as used in the disk's index, so that the disk
  // keeps them.
  void NoteUse() const;
  // Records that the sequence begins with the attached prefix. Must be called once for each
  // sequence, after its first AttachPrefix that is not undone. If the model has recurrent states,
  // earlier checkpoints of the prefix are evicted before others, unless several sequences began
  // with them.
  void NoteStart(absl::Span<const int32_t> tokens);

  // Returns the number of tokens that AttachPrefix would attach, without attaching them. Requires:
  // slots() is 0.
  int64_t CachedTokens(absl::Span<const int32_t> tokens);

  // Like CachedTokens, including blocks on the disk. Requires: slots() is 0.
  KvPrefix FindPrefix(absl::Span<const int32_t> tokens);

  // The hash of block number `block` of `tokens`. Requires: the block is full.
  const BlockHash& HashOf(absl::Span<const int32_t> tokens, int64_t block);

  // Reserves blocks for the slots [0, slots), and for the recurrent state after them. If there are
  // not enough blocks, returns nullopt and changes nothing.
  std::optional<KvReservation> Reserve(int64_t slots);
  // Reserves blocks for the checkpoints that a pass over the slots [slots(), slots) should write.
  // Some of the checkpoints may get no blocks, because checkpoints only use blocks that nothing
  // else needs. The blocks belong to the reservation. Does nothing if the model has no recurrent
  // state. Requires: the slots are reserved.
  void ReserveSnapshots(absl::Span<const int32_t> tokens, int64_t slots);
  // Also reserves blocks for checkpoints where sequences that come later may branch off from the
  // prompt. Evicts nothing but such checkpoints. Requires: ReserveSnapshots was called.
  void ReserveSpareSnapshots(absl::Span<const int32_t> tokens, int64_t slots);
  // Adds a boundary where another sequence with the same first tokens will branch off. If the model
  // has recurrent states, the pass that reaches the boundary writes a checkpoint there.
  void WantCheckpoint(int64_t boundary) { state_.AddBoundary(boundary); }

  // Declares that `tokens`, counted from slot 0, are final, and that their KV is written. Full
  // blocks and checkpoints enter the index. A window group releases the blocks that are not needed
  // to continue after the last full block. Requires: space was reserved, and `tokens` begin with
  // the tokens of earlier commits. If the model has recurrent states, all reserved slots are final.
  void Commit(absl::Span<const int32_t> tokens);

  // Returns the block table of each group for the slots [0, slots). Valid until the next Reserve,
  // Commit or Reset. Requires: the slots are reserved.
  std::vector<absl::Span<const int32_t>> Tables(int64_t slots) const;
  // Sets the blocks and the states of the pass over `span`, which begins at slots(). Valid as long
  // as Tables.
  void SetBlocks(RowSpan* span) const;

  // Releases all blocks, so that slots() becomes 0. AttachPrefix may be called again.
  void Reset();

 private:
  friend class KvCache;
  friend class KvReservation;
  KvLease(KvCache* cache, const BlockHash& root, int64_t prompt_tokens);

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

  HashedTokens Hashed(absl::Span<const int32_t> tokens, int64_t blocks);
  void ShrinkTables(int64_t blocks);
  void FreeBlocksOutOfReach();
  Match FindBlocks(absl::Span<const int32_t> tokens, KvPlaces places);
  void WantTail(const Tail& tail);
  void UnwantTails(int64_t block);

  KvCache* cache_ = nullptr;
  BlockHash root_;
  int64_t prompt_blocks_ = 0;  // number of full blocks of the prompt
  std::vector<Tail> tails_;
  int64_t slots_ = 0;
  // hashes of the full blocks, from the first; computed when needed
  std::vector<BlockHash> hashes_;
  int64_t table_blocks_ = 0;                  // the length of each table
  std::vector<std::vector<int32_t>> tables_;  // for each group
  StateLease state_;
};

struct KvCacheOptions {
  size_t memory_bytes = 0;
  std::string seed;                           // seed of block hashes
  kernels::KernelBackend* backend = nullptr;  // the same as KvBlocksOptions::backend
};

// Engine thread only. In the host's memory, a block is only reserved address space until something
// is written to it.
class KvCache {
 public:
  // If not even one token fits, returns INVALID_ARGUMENT, which names --kv-memory. Also returns the
  // errors of KvBlocks::Create.
  static absl::StatusOr<std::unique_ptr<KvCache>> Create(const std::vector<KvSpec>& layers,
                                                         const KvCacheOptions& options);
  ~KvCache();
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  const KvView& view() const { return layout_.view; }
  // `prompt_tokens` is the number of tokens before the sequence's output.
  KvLease NewLease(absl::string_view salt,
                   int64_t prompt_tokens = std::numeric_limits<int64_t>::max());

  // From now on, evicted blocks are written to the disk, and prefixes are also searched on the
  // disk. The disk must outlive the cache, unless SetDisk(nullptr) is called before.
  void SetDisk(KvDisk* disk) { blocks_->SetDisk(disk); }
  // Adds a block that was read from the disk to the index, with one holder. Returns kNoBlock if no
  // block is free. Requires: `bytes` has block_bytes() bytes.
  int32_t Put(const BlockKey& key, absl::Span<const int32_t> tokens,
              absl::Span<const std::byte> bytes) {
    return blocks_->Put(key, tokens, bytes);
  }
  // Add and remove a holder of a block. Leases hold blocks without calling these functions.
  void Hold(int32_t block) { pool().AddHolder(block); }
  void Release(int32_t block) { pool().Release(block); }
  // Number of holders of a block, including leases.
  int32_t holders(int32_t block) const { return blocks_->pool().holders(block); }
  // Records a prefix as released most recently. `last` is the hash of its last block.
  void NoteReleased(const BlockHash& last);
  // The same as KvBlocks::SpillCached.
  void SpillCached(absl::Duration patience) { blocks_->SpillCached(patience); }

  int64_t blocks_total() const { return blocks_->pool().total(); }
  int64_t blocks_free() const { return blocks_->pool().free(); }
  int64_t blocks_cached() const { return blocks_->pool().cached(); }
  // number of blocks that were never held
  int64_t blocks_untouched() const { return blocks_->pool().untouched(); }
  size_t block_bytes() const { return layout_.block_bytes; }
  // Number of groups of layers with KV.
  int groups() const { return static_cast<int>(layout_.specs.size()); }
  // Number of blocks of a recurrent state. 0 if the model has none.
  int64_t state_parts() const { return layout_.state_parts; }
  // Number of checkpoints of recurrent states in memory, including incomplete ones.
  int64_t checkpoints() const { return blocks_->pool().indexed(state_groups().first); }

  // Maximum number of blocks that one sequence holds while `slots` slots are computed, if a step
  // has at most `step` rows of the sequence. Includes kStatesPerSequence recurrent states.
  int64_t BlocksFor(int64_t slots, int64_t step) const { return KvBlocksFor(layout_, slots, step); }

  // Total number of blocks for which leases have computed hashes.
  int64_t blocks_hashed() const { return blocks_hashed_; }

  // Returns the prefixes that were released most recently and are still in memory or on the disk,
  // the latest first. Each prefix is represented by the digest of its last block. Returns at most
  // min(limit, kRecentPrefixes) digests.
  static constexpr size_t kRecentPrefixes = 256;
  std::vector<uint64_t> RecentPrefixes(size_t limit) const;

 private:
  friend class KvLease;
  explicit KvCache(KvLayout layout);
  // The first block that this group needs if a sequence continues after its first `block` blocks.
  int64_t FirstOfTail(int group, int64_t block) const;
  bool IsFull(int group) const { return layout_.specs[group].kind == KvKind::kFull; }
  BlockPool& pool() { return blocks_->pool(); }
  StateGroups state_groups() const { return {groups(), static_cast<int>(layout_.state_parts)}; }

  KvLayout layout_;
  bool has_full_group_ = false;
  std::string seed_;
  std::unique_ptr<KvBlocks> blocks_;
  std::deque<BlockHash> recent_;  // the latest is the first; no duplicates
  int64_t blocks_hashed_ = 0;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_KV_KV_CACHE_H_
