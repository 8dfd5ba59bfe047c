// KvDiskIndex: which slot of a KvDisk's file holds which block, which slot is reused next, and
// which entries of the file are out of date. It uses no file, clock or lock.
//
// A slot is free, being written, or stored. The least recently used stored slot without readers is
// reused first. Stamps number the uses. New stamps are written to the file in batches: until then,
// the slot is stale.
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

  // Loads a file's contents: call Restore for each entry, then EndRestore.
  void Restore(int32_t slot, const KvDiskEntry& entry);
  void EndRestore();

  // Returns the slot of a block that is stored or being written, or kNoBlock.
  int32_t Find(const BlockKey& key) const;
  // Same, but only if the block has these tokens.
  int32_t Find(const BlockKey& key, absl::Span<const int32_t> tokens) const;
  bool IsStored(int32_t slot) const { return slots_[slot].state == State::kStored; }
  bool IsWriting(int32_t slot) const { return slots_[slot].state == State::kWriting; }
  const KvDiskEntry& entry(int32_t slot) const { return slots_[slot].entry; }
  // True if the file has an entry for the slot.
  bool InFile(int32_t slot) const { return slots_[slot].in_file; }

  // Returns a slot to write: a free one if the file may grow, else the least recently used one,
  // whose block is forgotten. kNoBlock if there is none.
  enum class Growth : uint8_t { kAllowed, kForbidden };
  int32_t Take(Growth growth);
  // Marks the slot as being written, and as the most recently used. Requires: it comes from Take.
  // See NoteUse for `newer`.
  void BeginWrite(int32_t slot, const BlockKey& key, absl::Span<const int32_t> tokens,
                  int64_t newer);
  void EndWrite(int32_t slot, uint64_t checksum);
  void FailWrite(int32_t slot);

  // Marks a stored block as the most recently used. `newer`: how many of the blocks in later calls
  // were used more recently than this one, or -1 if the calls are in the order of use. Returns true
  // if no other entry was stale before.
  bool NoteUse(int32_t slot, int64_t newer);

  // A slot is not reused while it has readers.
  void BeginRead(int32_t slot) { ++slots_[slot].readers; }
  void EndRead(int32_t slot);
  // The block is damaged. Requires: it is stored.
  void Forget(int32_t slot);

  using StaleEntry = std::pair<int32_t, KvDiskEntry>;  // slot and entry
  bool has_stale() const { return !stale_.empty(); }
  // Returns at most `most` stale entries, which then count as written.
  std::vector<StaleEntry> TakeStale(size_t most);
  // Writing these entries failed, so they are stale again.
  void ReturnStale(absl::Span<const StaleEntry> entries);

  int64_t stored() const { return static_cast<int64_t>(recent_.size()); }

 private:
  enum class State : uint8_t { kFree, kWriting, kStored };
  struct Slot {
    State state = State::kFree;
    bool in_file = false;
    bool stale = false;  // is in stale_
    int readers = 0;
    KvDiskEntry entry;
    std::list<int32_t>::iterator place;  // position in recent_ if stored
  };

  void Store(int32_t slot);
  void FreeIfUnread(int32_t slot);
  uint64_t NextStamp(int64_t newer);

  std::vector<Slot> slots_;
  absl::flat_hash_map<BlockKey, int32_t> index_;  // stored or being written
  std::list<int32_t> recent_;                     // stored slots, the most recently used first
  std::vector<int32_t> free_;                     // a stack
  std::vector<int32_t> stale_;                    // slots
  std::vector<std::pair<uint64_t, int32_t>> restored_;  // stamps and slots; used until EndRestore
  uint64_t stamp_ = 0;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_KV_KV_DISK_INDEX_H_
