// The digest of every byte of a checkpoint, computed once and remembered beside it.
//
//   ASSIGN_OR_RETURN(ContentDigest digest, DigestContent(file, {.threads = 8}));
//
// Each part is cut into chunks of 4 MiB, and each chunk hashed with XXH3-128; the digest is the
// XXH3-128 of a version line, the number of parts, and of each part its size and its chunks'
// hashes. So it does not depend on the number of threads.
//
// The record of it is a text file: MODEL.gguf.tidedigest beside the first part, or
// SAMPLED-DIGEST.tidedigest in a folder for caches. It has the digest, what the file system says of
// each part (FileIdentity), the checkpoint's sampled digest, and a checksum of all that. A record
// that differs in any of these is not used.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_CONTENT_DIGEST_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_CONTENT_DIGEST_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/checkpoint/checkpoint.h"

namespace tidepool::engine {

struct ContentDigestOptions {
  int threads = 1;
  // Where the record goes if the checkpoint's folder takes no file; empty: nowhere else.
  std::string cache_dir;
  // A smaller checkpoint is hashed each time, which takes milliseconds, and gets no record.
  uint64_t min_recorded_bytes = 256 << 20;
  // Called with rising fractions up to 1 while bytes are hashed, on the calling thread.
  std::function<void(double fraction)> progress;
};

enum class DigestOrigin : uint8_t { kComputed, kRemembered };

struct ContentDigest {
  std::string hex;  // 32 hex digits
  DigestOrigin origin = DigestOrigin::kComputed;
  // Why a computed digest could not be recorded, with the record's path: the next start computes it
  // again.
  absl::Status recorded;
};

// DATA_LOSS names the file and the range that the disk cannot read. Requires: threads >= 1.
absl::StatusOr<ContentDigest> DigestContent(const Checkpoint& file,
                                            const ContentDigestOptions& options);

// The digest of a checkpoint whose weights are quantised to `type` while it is loaded; so for any
// digest of it.
std::string QuantizedDigest(absl::string_view digest, GgmlType type);

// The digest, if that costs next to nothing: it is recorded, or the checkpoint is too small for a
// record. nullopt also if the disk cannot read the checkpoint.
std::optional<std::string> KnownContentDigest(const Checkpoint& file,
                                              const ContentDigestOptions& options);

// Where the record of a checkpoint lies; `cache_dir` empty: beside it.
std::string DigestRecordPath(const Checkpoint& file, absl::string_view cache_dir);

// A record's text, and the digest in it; nullopt: it is damaged, or not of this checkpoint.
std::string FormatDigestRecord(const Checkpoint& file, absl::string_view hex);
std::optional<std::string> ParseDigestRecord(const Checkpoint& file, absl::string_view record);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_CONTENT_DIGEST_H_
