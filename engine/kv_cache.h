// KvCache: the keys and values of all sequences, in blocks of one byte-budgeted arena, and the
// index that finds the blocks of a token prefix that was computed before.
//
//   KvLease lease = cache->NewLease(salt);
//   lease.AttachPrefix(tokens);                               // slots() of them are there already
//   std::optional<KvReservation> space = lease.Reserve(40);   // empty: no blocks are left
//   ... a forward pass writes slots [slots(), 40) through lease.Tables(40) ...
//   space->Keep();
//   lease.Commit(absl::MakeSpan(tokens).first(40));           // final: full blocks can be found
//
// Layers of equal KvSpec form a group with its own block table. All groups draw from one pool, so a
// block is as large as the largest group needs: kKvBlockTokens tokens of all its layers.
#ifndef TIDEPOOL_ENGINE_KV_CACHE_H_
#define TIDEPOOL_ENGINE_KV_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "engine/block_hash.h"
#include "engine/block_pool.h"
#include "engine/kv_disk.h"
#include "engine/model/kv_spec.h"

namespace tidepool::engine {

class KvCache;
class KvLease;

// Blocks that a plan took for a lease: given back on destruction, unless kept. Engine thread only.
class KvReservation {
 public:
  KvReservation(KvReservation&& other) noexcept;
  KvReservation& operator=(KvReservation&&) = delete;
  ~KvReservation();
  // The blocks stay with the lease.
  void Keep() { lease_ = nullptr; }

 private:
  friend class KvLease;
  KvReservation(KvLease* lease, int64_t blocks) : lease_(lease), blocks_(blocks) {}

  KvLease* lease_;
  int64_t blocks_;  // that the lease's tables had before
};

// A prefix whose KV is there, in memory or on the disk beneath it.
struct KvPrefix {
  int64_t memory_tokens = 0;  // what AttachPrefix would return now
  int64_t tokens = 0;         // and once `on_disk` is in memory too
  struct Block {
    BlockKey key;
    int64_t index = 0;  // in the sequence
  };
  std::vector<Block> on_disk;      // in ascending order; none where that makes no prefix longer
  std::vector<int32_t> in_memory;  // the other blocks that it takes
};

// The blocks of one sequence; gives them back on destruction. All calls are of the sequence's own
// tokens, which may only change behind what a Truncate left, so that each block of them is hashed
// once, also over several stays in the cache. Engine thread only; must not outlive its cache, nor
// move while a reservation on it lives.
class KvLease {
 public:
  KvLease() = default;  // of no cache: holds nothing, may be destroyed or assigned to
  KvLease(KvLease&& other) noexcept { *this = std::move(other); }
  KvLease& operator=(KvLease&& other) noexcept;
  ~KvLease() { Reset(); }

  // Slots whose KV is final.
  int64_t slots() const { return slots_; }
  // Blocks held, over all groups.
  int64_t blocks_held() const;
  // Those of them that nobody else holds.
  int64_t blocks_held_alone() const;

  // Takes the longest prefix of `tokens` that is cached in every group, in whole blocks and short
  // of the last token, which is left to compute. Returns slots(). Requires: slots() is 0.
  int64_t AttachPrefix(absl::Span<const int32_t> tokens);
  // Tells the disk, if there is one, that what was attached is used: what is in both places is to
  // stay in both.
  void NoteUse() const;

  // What AttachPrefix would return. Requires: slots() is 0.
  int64_t CachedTokens(absl::Span<const int32_t> tokens);

  // The same, with what lies on the disk. Requires: slots() is 0.
  KvPrefix FindPrefix(absl::Span<const int32_t> tokens);

  // The hash of this block of `tokens`. Requires: they fill it.
  const BlockHash& HashOf(absl::Span<const int32_t> tokens, int64_t block);

  // Blocks for slots [0, slots); nullopt, and nothing changed, when too few are free.
  std::optional<KvReservation> Reserve(int64_t slots);

  // Tells that `tokens`, counted from slot 0, are final and that their KV is written: full blocks
  // enter the index, blocks out of every window's reach go. Requires: space for them is reserved,
  // and they begin with the tokens of earlier commits.
  void Commit(absl::Span<const int32_t> tokens);

  // Forgets slots from `slots` on and returns slots() now, which can be less: indexed blocks are
  // not written to again, and a window's blocks may be gone.
  int64_t Truncate(int64_t slots);

  // The block table of each group, long enough for slots [0, slots). Requires: reserved. Valid
  // until the next Reserve, Commit, Truncate or Reset.
  std::vector<absl::Span<const int32_t>> Tables(int64_t slots) const;

  // Gives all blocks back; slots() is 0. AttachPrefix may follow.
  void Reset();

 private:
  friend class KvCache;
  friend class KvReservation;
  KvLease(KvCache* cache, const BlockHash& root);

  int64_t table_blocks() const { return tables_.empty() ? 0 : tables_[0].size(); }
  void ShrinkTables(int64_t blocks);
  void FreeBlocksOutOfReach();
  int64_t CachedBlocks(absl::Span<const int32_t> tokens, bool with_disk);

  KvCache* cache_ = nullptr;
  BlockHash root_;
  int64_t slots_ = 0;
  std::vector<BlockHash> hashes_;             // of full blocks, as far as somebody asked
  std::vector<std::vector<int32_t>> tables_;  // by group; all of equal length
};

struct KvCacheOptions {
  size_t memory_bytes = 0;
  std::string seed;  // of block hashes
};

// Engine thread only. Its memory is reserved address space until a block is written.
class KvCache {
 public:
  // INVALID_ARGUMENT names --kv-memory when not one token fits.
  static absl::StatusOr<std::unique_ptr<KvCache>> Create(const std::vector<KvSpec>& layers,
                                                         const KvCacheOptions& options);
  // Tokens of one sequence, alone and without windows, whose KV such a cache would hold. Requires:
  // layers is not empty.
  static int64_t CapacityTokens(const std::vector<KvSpec>& layers, size_t memory_bytes);
  // Of each of its blocks. Requires: as above.
  static int64_t BlockBytes(const std::vector<KvSpec>& layers);

  ~KvCache();
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  const KvView& view() const { return view_; }
  KvLease NewLease(absl::string_view salt);

  // Blocks that are given up go there from now on, and prefixes are looked for there too. It
  // outlives the cache, or is taken away with nullptr before.
  void SetDisk(KvDisk* disk) { disk_ = disk; }
  // A block from the disk: held once, with this content, which may be found from now on. kNoBlock:
  // no block is free. Requires: block_bytes() bytes.
  int32_t Put(const BlockKey& key, absl::Span<const int32_t> tokens,
              absl::Span<const std::byte> bytes);
  // One holder more, and one less, of a block beside its leases.
  void Hold(int32_t block) { pool_.AddHolder(block); }
  void Release(int32_t block) { pool_.Release(block); }
  int32_t holders(int32_t block) const { return pool_.holders(block); }
  // Tells that this prefix is reusable, as the release of a lease does.
  void NoteReleased(const BlockHash& last);
  // Writes cached blocks to the disk, the latest released first, until all are there or `patience`
  // has passed. Requires: a disk.
  void SpillCached(absl::Duration patience);

  int64_t blocks_total() const { return pool_.total(); }
  int64_t blocks_free() const { return pool_.free(); }
  int64_t blocks_cached() const { return pool_.cached(); }
  int64_t blocks_untouched() const { return pool_.untouched(); }  // that nobody ever held
  size_t block_bytes() const { return block_bytes_; }
  int groups() const { return static_cast<int>(specs_.size()); }

  // The most blocks that one sequence holds while it is computed up to `slots` slots, in steps of
  // at most `step` rows.
  int64_t BlocksFor(int64_t slots, int64_t step) const;

  // Blocks of tokens that leases hashed, in all: what it costs to know prefixes again.
  int64_t blocks_hashed() const { return blocks_hashed_; }

  // The last block's digest of each of the most recently released prefixes that are still cached,
  // or on the disk, the latest first, at most `limit` (and at most kRecentPrefixes).
  static constexpr size_t kRecentPrefixes = 256;
  std::vector<uint64_t> RecentPrefixes(size_t limit) const;

 private:
  friend class KvLease;
  KvCache(std::vector<KvSpec> specs, KvView view, size_t block_bytes, int32_t blocks);
  // Slots that a row at `slot` may see in this group begin here.
  int64_t FirstVisible(int group, int64_t slot) const;
  bool IsThere(const BlockKey& key, absl::Span<const int32_t> tokens, bool with_disk) const;
  bool IsKnown(const BlockKey& key, bool with_disk) const;
  int32_t Allocate();
  absl::Span<const std::byte> BytesOf(int32_t block) const;

  std::vector<KvSpec> specs_;  // by group
  KvView view_;
  size_t block_bytes_;
  std::string seed_;
  BlockPool pool_;
  KvDisk* disk_ = nullptr;
  std::deque<BlockHash> recent_;  // latest first, without repeats
  int64_t blocks_hashed_ = 0;
  std::byte* memory_ = nullptr;  // mapped
  size_t memory_bytes_ = 0;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_KV_CACHE_H_
