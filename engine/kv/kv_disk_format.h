// The layout of a KvDisk's file, and the parser of what an earlier process left in it.
//
//   [0, 4096)                  header: magic, version, sizes, identity, checksum
//   [4096, slots_offset)       a table of entries of 256 bytes, one for each slot
//   [slots_offset, end)        slots: one KV block each
//
// Numbers are little-endian. An entry is written behind its block and has a checksum of its own and
// one of the block, so that whatever a kill or a power cut leaves is known for what it is: the file
// is a cache, and what is not whole is not there.
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

// Raised whenever the layout, or what a KV block holds, changes.
inline constexpr uint32_t kKvDiskVersion = 1;
// Of everything that is read and written past the page cache.
inline constexpr int64_t kKvDiskPage = 4096;
inline constexpr int64_t kKvDiskEntryBytes = 256;
// Whatever the limit: what is known of each takes memory (KvDisk::kIndexBytes).
inline constexpr int64_t kMaxKvDiskSlots = int64_t{1} << 20;

// Where what lies in a file of so many slots.
struct KvDiskLayout {
  int64_t block_bytes = 0;
  int64_t slots = 0;

  int64_t slot_bytes() const;  // a block's, in whole pages
  int64_t entry_offset(int64_t slot) const { return kKvDiskPage + slot * kKvDiskEntryBytes; }
  int64_t table_bytes() const { return slots * kKvDiskEntryBytes; }
  int64_t slot_offset(int64_t slot) const;
  int64_t file_bytes() const { return slot_offset(slots); }
};

// As many slots as `limit_bytes` of disk hold, table and header included, up to kMaxKvDiskSlots.
// INVALID_ARGUMENT names
// --kv-disk when that is none. Requires: block_bytes > 0.
absl::StatusOr<KvDiskLayout> PlanKvDisk(int64_t limit_bytes, int64_t block_bytes);

// What a slot holds.
struct KvDiskEntry {
  BlockKey key;
  std::array<int32_t, kernels::kKvBlockTokens> tokens = {};
  uint64_t stamp = 0;     // ascending: larger ones are to be kept longer
  uint64_t checksum = 0;  // of the block: KvDiskChecksum
};

uint64_t KvDiskChecksum(absl::Span<const std::byte> block);

// kKvDiskPage bytes. `identity` is of whatever makes KV of equal keys equal.
std::string EncodeKvDiskHeader(const KvDiskLayout& layout, absl::string_view identity);
// Whether this is the header of a file of this layout and identity.
bool IsKvDiskHeader(absl::string_view bytes, const KvDiskLayout& layout,
                    absl::string_view identity);

// kKvDiskEntryBytes bytes.
std::string EncodeKvDiskEntry(const KvDiskEntry& entry, int64_t slot);
// nullopt: the slot holds nothing that is whole.
std::optional<KvDiskEntry> ParseKvDiskEntry(absl::string_view bytes, int64_t slot);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_KV_KV_DISK_FORMAT_H_
