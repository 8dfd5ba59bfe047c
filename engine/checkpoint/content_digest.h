// The digest of every byte of a checkpoint. It is computed once and recorded next to the
// checkpoint.
//
//   ASSIGN_OR_RETURN(ContentDigest digest, DigestContent(file, {.threads = 8}));
//
// Each part is split into chunks of 4 MiB, and each chunk is hashed with XXH3-128. The digest is
// the XXH3-128 of a version line, the number of parts, and each part's size and chunk hashes. So
// the digest does not depend on the number of threads.
//
// The record is a text file: MODEL.gguf.tidedigest next to the first part, or
// SAMPLED-DIGEST.tidedigest in a cache directory. It contains the digest, the file attributes of
// each part (FileIdentity), the checkpoint's sampled digest, and a checksum over these values. If
// the attributes, the sampled digest or the checksum differ, the record is not used.
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
  // Directory for the record if the checkpoint's directory is not writable. If empty, the record is
  // not written in that case.
  std::string cache_dir;
  // Minimum size of a checkpoint that gets a record. A smaller checkpoint is hashed at each start,
  // which takes milliseconds.
  uint64_t min_recorded_bytes = 256 << 20;
  // Called on the calling thread. The fraction increases up to 1.
  std::function<void(double fraction)> progress;
};

enum class DigestOrigin : uint8_t { kComputed, kRemembered };

struct ContentDigest {
  std::string hex;  // 32 hex digits
  DigestOrigin origin = DigestOrigin::kComputed;
  // OK if the digest is recorded. Otherwise the reason why it could not be recorded, with the
  // record's path; the next start then computes the digest again.
  absl::Status recorded;
};

// Returns DATA_LOSS with the file and the range if a range cannot be read. Requires: threads >= 1.
absl::StatusOr<ContentDigest> DigestContent(const Checkpoint& file,
                                            const ContentDigestOptions& options);

// Returns the digest of a checkpoint whose weights are quantised to `type` on loading. `digest` is
// any digest of the checkpoint itself.
std::string QuantizedDigest(absl::string_view digest, GgmlType type);

// Returns the digest if it is available at low cost: if it is recorded, or if the checkpoint is too
// small for a record. Otherwise, or if the checkpoint cannot be read, returns nullopt.
std::optional<std::string> KnownContentDigest(const Checkpoint& file,
                                              const ContentDigestOptions& options);

// Path of a checkpoint's record. If `cache_dir` is empty, the record is next to the checkpoint.
std::string DigestRecordPath(const Checkpoint& file, absl::string_view cache_dir);

// Format a record, and parse the digest of a record. ParseDigestRecord returns nullopt if the
// record is damaged or belongs to another checkpoint.
std::string FormatDigestRecord(const Checkpoint& file, absl::string_view hex);
std::optional<std::string> ParseDigestRecord(const Checkpoint& file, absl::string_view record);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_CONTENT_DIGEST_H_
