#include "engine/kv/kv_disk_format.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"

namespace tidepool::engine {
namespace {

constexpr absl::string_view kMagic = "TIDEKVBL";
constexpr int64_t kBlockTokens = kernels::kKvBlockTokens;
constexpr int64_t kChecksumAt = kKvDiskEntryBytes - 8;
// An entry consists of the key, the group, the stamp, the block's checksum, and the tokens.
static_assert(16 + 8 + 8 + 8 + 4 * kBlockTokens <= kChecksumAt);

int64_t InPages(int64_t bytes) { return (bytes + kKvDiskPage - 1) / kKvDiskPage * kKvDiskPage; }

void Put(uint64_t value, int bytes, std::string* out) {
  for (int i = 0; i < bytes; ++i) out->push_back(static_cast<char>(value >> (8 * i)));
}

uint64_t Get(absl::string_view* in, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) {
    value |= uint64_t{static_cast<unsigned char>((*in)[i])} << (8 * i);
  }
  in->remove_prefix(bytes);
  return value;
}

// The slot is used as the seed. So an entry that was copied to another slot is invalid.
uint64_t EntryChecksum(absl::string_view bytes, int64_t slot) {
  return XXH3_64bits_withSeed(bytes.data(), kChecksumAt, static_cast<uint64_t>(slot) + 1);
}

}  // namespace

int64_t KvDiskLayout::slot_bytes() const { return InPages(block_bytes); }

int64_t KvDiskLayout::slot_offset(int64_t slot) const {
  return kKvDiskPage + InPages(table_bytes()) + slot * slot_bytes();
}

absl::StatusOr<KvDiskLayout> PlanKvDisk(int64_t limit_bytes, int64_t block_bytes) {
  CHECK_GT(block_bytes, 0);
  KvDiskLayout layout = {.block_bytes = block_bytes, .slots = 1};
  const int64_t least = layout.file_bytes();
  if (limit_bytes < least) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--kv-disk of ", limit_bytes, " bytes cannot hold a KV block; this model needs at least ",
        least, " bytes for ", kBlockTokens, " tokens"));
  }
  const auto fit = [&] { return layout.file_bytes() <= limit_bytes; };
  // The first estimate does not include the last page of the table, which is not always needed.
  layout.slots = (limit_bytes - 2 * kKvDiskPage) / (layout.slot_bytes() + kKvDiskEntryBytes);
  layout.slots = std::clamp<int64_t>(layout.slots, 1, kMaxKvDiskSlots - 1) + 1;
  if (!fit()) --layout.slots;
  return layout;
}

uint64_t KvDiskChecksum(absl::Span<const std::byte> block) {
  return XXH3_64bits(block.data(), block.size());
}

std::string EncodeKvDiskHeader(const KvDiskLayout& layout, absl::string_view identity) {
  std::string header(kMagic);
  Put(kKvDiskVersion, 4, &header);
  Put(kBlockTokens, 4, &header);
  Put(layout.block_bytes, 8, &header);
  Put(layout.slots, 8, &header);
  const XXH128_hash_t hash = XXH3_128bits(identity.data(), identity.size());
  Put(hash.low64, 8, &header);
  Put(hash.high64, 8, &header);
  Put(XXH3_64bits(header.data(), header.size()), 8, &header);
  header.resize(kKvDiskPage);
  return header;
}

bool IsKvDiskHeader(absl::string_view bytes, const KvDiskLayout& layout,
                    absl::string_view identity) {
  return bytes == EncodeKvDiskHeader(layout, identity);
}

std::string EncodeKvDiskEntry(const KvDiskEntry& entry, int64_t slot) {
  std::string bytes;
  Put(entry.key.hash.low, 8, &bytes);
  Put(entry.key.hash.high, 8, &bytes);
  Put(static_cast<uint64_t>(entry.key.group), 8, &bytes);
  Put(entry.stamp, 8, &bytes);
  Put(entry.checksum, 8, &bytes);
  for (const int32_t token : entry.tokens) Put(static_cast<uint32_t>(token), 4, &bytes);
  bytes.resize(kChecksumAt);
  Put(EntryChecksum(bytes, slot), 8, &bytes);
  return bytes;
}

std::optional<KvDiskEntry> ParseKvDiskEntry(absl::string_view bytes, int64_t slot) {
  if (bytes.size() != static_cast<size_t>(kKvDiskEntryBytes)) return std::nullopt;
  absl::string_view checksum = bytes.substr(kChecksumAt);
  if (Get(&checksum, 8) != EntryChecksum(bytes, slot)) return std::nullopt;
  KvDiskEntry entry;
  entry.key.hash.low = Get(&bytes, 8);
  entry.key.hash.high = Get(&bytes, 8);
  const uint64_t group = Get(&bytes, 8);
  if (group > INT32_MAX) return std::nullopt;
  entry.key.group = static_cast<int>(group);
  entry.stamp = Get(&bytes, 8);
  entry.checksum = Get(&bytes, 8);
  for (int32_t& token : entry.tokens) token = static_cast<int32_t>(Get(&bytes, 4));
  return entry;
}

}  // namespace tidepool::engine
