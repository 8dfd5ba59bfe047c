// KvDiskIndex: the index of a KvDisk's file. It records which block is in which slot, which slot is
// reused next, and which entries of the file are out of date. It uses no file, clock or lock.
//
// A slot is free, being written, or stored. The stored slot that was used least recently and is not
// being read is reused first. Each use gives a slot a higher stamp. New stamps are written to the
// file in batches. Until its stamp is written, a slot is stale.
#ifndef TIDEPOOL_ENGINE_KV_KV_DISK_INDEX_H_
#define TIDEPOOL_ENGINE_KV_KV_DISK_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "engine/kv/block_pool.h"
#include "engine/kv/kv_disk_format.h"

namespace tidepool::engine {

// Thread-compatible.
class KvDiskIndex {
 public:
  explicit KvDiskIndex(int64_t slots) : slots_(slots) {}

  // Load the contents of a file: call Restore for each entry, then EndRestore.
  void Restore(int32_t slot, const KvDiskEntry& entry);
  void EndRestore();

  // Returns the slot of a block that is stored or being written. Returns kNoBlock if there is none.
  int32_t Find(const BlockKey& key) const;
  // Like Find(key), but the block must also have these tokens.
  int32_t Find(const BlockKey& key, absl::Span<const int32_t> tokens) const;
  bool IsStored(int32_t slot) const { return slots_[slot].state == State::kStored; }
  bool IsWriting(int32_t slot) const { return slots_[slot].state == State::kWriting; }
  const KvDiskEntry& entry(int32_t slot) const { return slots_[slot].entry; }
  // Returns whether the file has an entry for the slot.
  bool InFile(int32_t slot) const { return slots_[slot].in_file; }

  // Returns a slot to write. It is a free slot if the file may grow, otherwise the slot that was
  // used least recently, whose block is forgotten. Returns kNoBlock if there is none.
  enum class Growth : uint8_t { kAllowed, kForbidden };
  int32_t Take(Growth growth);
  // Marks the slot as being written, and as used most recently. Requires: the slot comes from Take.
  // NoteUse explains `newer`.
  void BeginWrite(int32_t slot, const BlockKey& key, absl::Span<const int32_t> tokens,
                  int64_t newer);
  void EndWrite(int32_t slot, uint64_t checksum);
  void FailWrite(int32_t slot);

  // Marks a stored block as used most recently. `newer` is the number of blocks, among those of
  // later calls, that were used more recently than this one. It is -1 if calls are made in the
  // order of use. Returns true if no other entry was stale before.
  bool NoteUse(int32_t slot, int64_t newer);

  // Begin and end a read. A slot is not reused while it is being read.
  void BeginRead(int32_t slot) { ++slots_[slot].readers; }
  void EndRead(int32_t slot);
  // Removes a block, for example because it is damaged. Requires: the block is stored.
  void Forget(int32_t slot);

  using StaleEntry = std::pair<int32_t, KvDiskEntry>;  // a slot and its entry
  bool has_stale() const { return !stale_.empty(); }
  // Returns at most `most` stale entries. From then on, they are treated as written.
  std::vector<StaleEntry> TakeStale(size_t most);
  // Makes entries stale again, because writing them failed.
  void ReturnStale(absl::Span<const StaleEntry> entries);

  int64_t stored() const { return static_cast<int64_t>(recent_.size()); }

 private:
  enum class State : uint8_t { kFree, kWriting, kStored };
  struct Slot {
    State state = State::kFree;
    bool in_file = false;
    bool stale = false;  // whether stale_ contains this slot
    int readers = 0;
    KvDiskEntry entry;
    std::list<int32_t>::iterator place;  // position in recent_, if the slot is stored
  };

  void Store(int32_t slot);
  void FreeIfUnread(int32_t slot);
  uint64_t NextStamp(int64_t newer);

  std::vector<Slot> slots_;
  // slots of blocks that are stored or being written
  absl::flat_hash_map<BlockKey, int32_t> index_;
  std::list<int32_t> recent_;   // stored slots; the one that was used most recently is the first
  std::vector<int32_t> free_;   // used as a stack
  std::vector<int32_t> stale_;  // the stale slots
  // stamps and slots; only used until EndRestore
  std::vector<std::pair<uint64_t, int32_t>> restored_;
  uint64_t stamp_ = 0;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_KV_KV_DISK_INDEX_H_
