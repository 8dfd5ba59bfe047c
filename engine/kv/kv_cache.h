// KvCache: the keys and values of all sequences, in blocks of one arena with a byte budget, and the
// index that finds the blocks of a token prefix that was computed before.
//
//   KvLease lease = cache->NewLease(salt);
//   lease.AttachPrefix(tokens);                               // slots() of them are cached
//   std::optional<KvReservation> space = lease.Reserve(40);   // empty: no blocks are left
//   ... a forward pass writes slots [slots(), 40) through lease.Tables(40) ...
//   space->Keep();
//   lease.Commit(absl::MakeSpan(tokens).first(40));           // final: full blocks can be found
//
// Layers of equal KvSpec form a group with its own block table. All groups draw from one pool, so a
// block is as large as the largest group needs: kKvBlockTokens tokens of all its layers.
#ifndef TIDEPOOL_ENGINE_KV_KV_CACHE_H_
#define TIDEPOOL_ENGINE_KV_KV_CACHE_H_

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
#include "engine/kv/block_hash.h"
#include "engine/kv/block_pool.h"
#include "engine/kv/kv_disk.h"
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

// A prefix whose KV is in memory or on the disk.
struct KvPrefix {
  int64_t memory_tokens = 0;  // what AttachPrefix returns now
  int64_t tokens = 0;         // what it returns once `on_disk` is in memory too
  struct Block {
    BlockKey key;
    int64_t index = 0;  // in the sequence
  };
  std::vector<Block> on_disk;      // ascending; empty if that does not make the prefix longer
  std::vector<int32_t> in_memory;  // the other blocks that it takes
};

// The blocks of one sequence; gives them back on destruction. All calls are of the sequence's own
// tokens, which may only grow, so that each block of them is hashed once, also over several stays
// in the cache. Engine thread only; must not outlive its cache, nor move while a reservation on it
// lives.
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

  // Takes the longest prefix of `tokens` that is cached in every group, in whole blocks and without
  // the last token, which is always computed. Returns slots(). Requires: slots() is 0.
  int64_t AttachPrefix(absl::Span<const int32_t> tokens);
  // If there is a disk: the blocks that were attached count as used there too, so that it keeps
  // them.
  void NoteUse() const;

  // What AttachPrefix would return, without taking it. Requires: slots() is 0.
  int64_t CachedTokens(absl::Span<const int32_t> tokens);

  // The same, with what is on the disk. Requires: slots() is 0.
  KvPrefix FindPrefix(absl::Span<const int32_t> tokens);

  // The hash of this block of `tokens`. Requires: they fill it.
  const BlockHash& HashOf(absl::Span<const int32_t> tokens, int64_t block);

  // Blocks for slots [0, slots); nullopt, and nothing changed, when too few are free.
  std::optional<KvReservation> Reserve(int64_t slots);

  // `tokens`, counted from slot 0, are final and their KV is written: full blocks enter the index,
  // blocks out of every window's reach are released. Requires: space for them is reserved, and they
  // begin with the tokens of earlier commits.
  void Commit(absl::Span<const int32_t> tokens);

  // The block table of each group, long enough for slots [0, slots). Requires: reserved. Valid
  // until the next Reserve, Commit or Reset.
  std::vector<absl::Span<const int32_t>> Tables(int64_t slots) const;

  // Releases all blocks; slots() is 0. AttachPrefix may follow.
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
  std::vector<BlockHash> hashes_;             // of the first full blocks, computed on demand
  std::vector<std::vector<int32_t>> tables_;  // by group; all of equal length
};

// Tokens of one sequence, alone and without windows, whose KV a cache of so many bytes holds.
// Requires: layers is not empty.
int64_t KvCapacityTokens(const std::vector<KvSpec>& layers, size_t memory_bytes);
// Of each block of such a cache.
int64_t KvBlockBytes(const std::vector<KvSpec>& layers);

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
  ~KvCache();
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  const KvView& view() const { return view_; }
  KvLease NewLease(absl::string_view salt);

  // Evicted blocks go to the disk from now on, and prefixes are looked for there too. The disk
  // outlives the cache, or is removed with nullptr before.
  void SetDisk(KvDisk* disk) { disk_ = disk; }
  // Adds a block from the disk: held once, and findable from now on. kNoBlock: no block is free.
  // Requires: block_bytes() bytes.
  int32_t Put(const BlockKey& key, absl::Span<const int32_t> tokens,
              absl::Span<const std::byte> bytes);
  // One holder more, and one less, of a block, beside its leases.
  void Hold(int32_t block) { pool_.AddHolder(block); }
  void Release(int32_t block) { pool_.Release(block); }
  // Of a block, leases included.
  int32_t holders(int32_t block) const { return pool_.holders(block); }
  // This prefix is reusable, as after the release of a lease.
  void NoteReleased(const BlockHash& last);
  // Writes cached blocks to the disk, the latest released first, until all are written or
  // `patience` has passed. Requires: a disk.
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

  // Blocks of tokens that leases have hashed, in all.
  int64_t blocks_hashed() const { return blocks_hashed_; }

  // The most recently released prefixes that are still in memory or on the disk, the latest first,
  // at most `limit` and kRecentPrefixes: the digest of the last block of each.
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

#endif  // TIDEPOOL_ENGINE_KV_KV_CACHE_H_
