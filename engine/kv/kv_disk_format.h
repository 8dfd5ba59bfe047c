// The layout of a KvDisk's file, and its parser.
//
//   [0, 4096)                  header: magic, version, sizes, identity, checksum
//   [4096, slots_offset)       a table of entries of 256 bytes, one for each slot
//   [slots_offset, end)        slots: one KV block each
//
// Numbers are little-endian. An entry is written after its block. It has its own checksum and the
// block's, so that a slot that a kill or a power failure left incomplete is detected and treated as
// empty.
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

// Increment this if the layout, or the content of a KV block, changes.
inline constexpr uint32_t kKvDiskVersion = 2;
// Alignment of all direct reads and writes.
inline constexpr int64_t kKvDiskPage = 4096;
inline constexpr int64_t kKvDiskEntryBytes = 256;
// Maximum number of slots, because the index needs memory for each (KvDisk::kIndexBytes).
inline constexpr int64_t kMaxKvDiskSlots = int64_t{1} << 20;

// Sizes and offsets of a file with this number of slots.
struct KvDiskLayout {
  int64_t block_bytes = 0;
  int64_t slots = 0;

  int64_t slot_bytes() const;  // size of a block, rounded up to whole pages
  int64_t entry_offset(int64_t slot) const { return kKvDiskPage + slot * kKvDiskEntryBytes; }
  int64_t table_bytes() const { return slots * kKvDiskEntryBytes; }
  int64_t slot_offset(int64_t slot) const;
  int64_t file_bytes() const { return slot_offset(slots); }
};

// Computes the layout with as many slots as fit into `limit_bytes` with table and header, up to
// kMaxKvDiskSlots. INVALID_ARGUMENT names --kv-disk if not even one fits. Requires: block_bytes >
// 0.
absl::StatusOr<KvDiskLayout> PlanKvDisk(int64_t limit_bytes, int64_t block_bytes);

// The content of a slot.
struct KvDiskEntry {
  BlockKey key;
  std::array<int32_t, kernels::kKvBlockTokens> tokens = {};
  uint64_t stamp = 0;     // increases with use: higher ones are kept longer
  uint64_t checksum = 0;  // KvDiskChecksum of the block
};

uint64_t KvDiskChecksum(absl::Span<const std::byte> block);

// Returns kKvDiskPage bytes. `identity` identifies everything else that KV depends on.
std::string EncodeKvDiskHeader(const KvDiskLayout& layout, absl::string_view identity);
// True if this is the header of a file with this layout and identity.
bool IsKvDiskHeader(absl::string_view bytes, const KvDiskLayout& layout,
                    absl::string_view identity);

// Returns kKvDiskEntryBytes bytes.
std::string EncodeKvDiskEntry(const KvDiskEntry& entry, int64_t slot);
// Returns nullopt if the slot has no valid entry.
std::optional<KvDiskEntry> ParseKvDiskEntry(absl::string_view bytes, int64_t slot);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_KV_KV_DISK_FORMAT_H_
