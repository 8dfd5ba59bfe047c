// The layout of a KvDisk's file, and its parser.
//
//   [0, 4096)                  header: magic, version, sizes, identity, checksum
//   [4096, slots_offset)       a table of entries of 256 bytes, one for each slot
//   [slots_offset, end)        slots: one KV block each
//
// Numbers are little-endian. An entry is written after its block, and has a checksum of itself and
// one of the block. If a killed process or a power failure leaves a slot incomplete, the checksums
// show it, and the slot is treated as empty.
#ifndef TIDEPOOL_ENGINE_KV_KV_DISK_FORMAT_H_
#define TIDEPOOL_ENGINE_KV_KV_DISK_FORMAT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/kv/block_pool.h"
#include "kernels/backend.h"

namespace tidepool::engine {

// Increment this if the layout changes, or if the content of a KV block changes.
inline constexpr uint32_t kKvDiskVersion = 2;
// The alignment of all reads and writes that bypass the page cache.
inline constexpr int64_t kKvDiskPage = 4096;
inline constexpr int64_t kKvDiskEntryBytes = 256;
// Maximum number of slots. The index needs memory for each slot (KvDisk::kIndexBytes).
inline constexpr int64_t kMaxKvDiskSlots = int64_t{1} << 20;

// Sizes and offsets in a file with `slots` slots.
struct KvDiskLayout {
  int64_t block_bytes = 0;
  int64_t slots = 0;

  int64_t slot_bytes() const;  // size of a block, rounded up to whole pages
  int64_t entry_offset(int64_t slot) const { return kKvDiskPage + slot * kKvDiskEntryBytes; }
  int64_t table_bytes() const { return slots * kKvDiskEntryBytes; }
  int64_t slot_offset(int64_t slot) const;
  int64_t file_bytes() const { return slot_offset(slots); }
};

// Computes the layout of a file of at most `limit_bytes` bytes, including header and table. It has
// as many slots as fit, up to kMaxKvDiskSlots. If not even one slot fits, returns INVALID_ARGUMENT,
// which names --kv-disk. Requires: block_bytes > 0.
absl::StatusOr<KvDiskLayout> PlanKvDisk(int64_t limit_bytes, int64_t block_bytes);

// The entry of a slot: what the slot contains.
struct KvDiskEntry {
  BlockKey key;
  std::array<int32_t, kernels::kKvBlockTokens> tokens = {};
  uint64_t stamp = 0;     // increases with each use; blocks with higher stamps are kept longer
  uint64_t checksum = 0;  // KvDiskChecksum of the block
};

uint64_t KvDiskChecksum(absl::Span<const std::byte> block);

// Returns a header of kKvDiskPage bytes. `identity` identifies everything else that the KV depends
// on.
std::string EncodeKvDiskHeader(const KvDiskLayout& layout, absl::string_view identity);
// Returns whether `bytes` are the header of a file with this layout and identity.
bool IsKvDiskHeader(absl::string_view bytes, const KvDiskLayout& layout,
                    absl::string_view identity);

// Returns an entry of kKvDiskEntryBytes bytes.
std::string EncodeKvDiskEntry(const KvDiskEntry& entry, int64_t slot);
// Returns nullopt if the slot has no valid entry.
std::optional<KvDiskEntry> ParseKvDiskEntry(absl::string_view bytes, int64_t slot);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_KV_KV_DISK_FORMAT_H_
