// KvDiskIndex: which slot of a KvDisk's file holds which block, which slot is reused next, and
// which entries of the file are out of date. Numbers only: no file, no clock, no lock.
//
// A slot is free, being written, or stored. The least recently used stored slot that nobody reads
// is reused first. Uses are numbered by stamps. The file learns of new stamps some at a time: a
// slot whose stamp it does not know yet is stale.
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

  // Takes over what a file holds: first each entry, then the end.
  void Restore(int32_t slot, const KvDiskEntry& entry);
  void EndRestore();

  // The slot of a block that is stored or being written, or kNoBlock.
  int32_t Find(const BlockKey& key) const;
  // The same, only if the block is of these tokens.
  int32_t Find(const BlockKey& key, absl::Span<const int32_t> tokens) const;
  bool IsStored(int32_t slot) const { return slots_[slot].state == State::kStored; }
  bool IsWriting(int32_t slot) const { return slots_[slot].state == State::kWriting; }
  const KvDiskEntry& entry(int32_t slot) const { return slots_[slot].entry; }
  // Whether the file has an entry for the slot.
  bool InFile(int32_t slot) const { return slots_[slot].in_file; }

  // A slot to write into: a free one if the file may grow, else the one that is reused next, whose
  // block is forgotten. kNoBlock: there is none.
  enum class Growth : uint8_t { kAllowed, kForbidden };
  int32_t Take(Growth growth);
  // The slot is being written from now on, as the latest use. Requires: it comes from Take.
  // `newer`: see NoteUse.
  void BeginWrite(int32_t slot, const BlockKey& key, absl::Span<const int32_t> tokens,
                  int64_t newer);
  void EndWrite(int32_t slot, uint64_t checksum);
  void FailWrite(int32_t slot);

  // A stored block is used: it is reused last. `newer`: how many blocks that come later are newer
  // than this one, or -1 if blocks come in the order of their use. True: its entry is the first
  // one that is stale.
  bool NoteUse(int32_t slot, int64_t newer);

  // A slot is not reused while somebody reads it.
  void BeginRead(int32_t slot) { ++slots_[slot].readers; }
  void EndRead(int32_t slot);
  // The block is damaged. Requires: stored.
  void Forget(int32_t slot);

  using StaleEntry = std::pair<int32_t, KvDiskEntry>;  // slot and entry
  bool has_stale() const { return !stale_.empty(); }
  // At most `most` stale entries, which are not stale any more.
  std::vector<StaleEntry> TakeStale(size_t most);
  // The file did not take these.
  void ReturnStale(absl::Span<const StaleEntry> entries);

  int64_t stored() const { return static_cast<int64_t>(recent_.size()); }

 private:
  enum class State : uint8_t { kFree, kWriting, kStored };
  struct Slot {
    State state = State::kFree;
    bool in_file = false;
    bool stale = false;  // in stale_
    int readers = 0;
    KvDiskEntry entry;
    std::list<int32_t>::iterator place;  // in recent_, when stored
  };

  void Store(int32_t slot);
  void FreeIfUnread(int32_t slot);
  uint64_t NextStamp(int64_t newer);

  std::vector<Slot> slots_;
  absl::flat_hash_map<BlockKey, int32_t> index_;        // stored or being written
  std::list<int32_t> recent_;                           // stored, the latest used first
  std::vector<int32_t> free_;                           // a stack
  std::vector<int32_t> stale_;                          // slots
  std::vector<std::pair<uint64_t, int32_t>> restored_;  // stamps and slots, until EndRestore
  uint64_t stamp_ = 0;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_KV_KV_DISK_INDEX_H_
