// The fixed parts of a pack file's header, which pack_file.h describes. Implementation detail of
// pack_file.cc and pack_writer.cc.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_PACK_HEADER_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_PACK_HEADER_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "xxhash.h"

namespace tidepool::engine {

inline constexpr absl::string_view kPackMagic = "TIDEPACK";
// Increment this if the header, the layout of records, or the panels of any type change
// (kernels/panel.h).
inline constexpr uint32_t kPackVersion = 3;

struct PackPreamble {
  char magic[8];
  uint32_t version;
  uint32_t layers;
  uint32_t experts;
  uint32_t zero;
  char digest[32];
  int64_t modified_ns;
  uint64_t file_bytes;
};
static_assert(sizeof(PackPreamble) == 72);

struct PackEntry {
  uint64_t bytes;
  uint64_t hash;
};
static_assert(sizeof(PackEntry) == 16);

inline uint64_t PackHash(absl::Span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_PACK_HEADER_H_
