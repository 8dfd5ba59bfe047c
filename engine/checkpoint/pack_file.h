// The pack file: a checkpoint's experts as kernels read them, one aligned record each.
//
//   ASSIGN_OR_RETURN(moe::ExpertRecords records, ReadPack("m.gguf.tidepack", contents));
//
// Little-endian, from the start of the file:
//   char[8] "TIDEPACK", u32 format version, u32 MoE layers, u32 experts of a layer, u32 0,
//   char[32] digest of every byte of the checkpoint (content_digest.h), i64 when that was last
//   changed (Checkpoint::modified_ns), u64 bytes of the pack;
//   per expert, layers first: u64 bytes of its record, u64 XXH3-64 of them;
//   u64 XXH3-64 of all that; zeros up to a multiple of 4,096.
// Then the records, in the same order, with nothing between. moe/expert_record.h says what is in
// one, kernels/panel.h what the bytes of a matrix mean; both belong to the format version.
//
// Earlier releases wrote the sampled digest (Checkpoint::SampledDigest) in place of the digest.
// Such a pack is used if the checkpoint's time of change is the one in the header, and
// RenewPackDigest then writes the digest into it.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_PACK_FILE_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_PACK_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "moe/expert_record.h"

namespace tidepool::engine {

// What a checkpoint's pack holds. layouts[m][e]: of expert e of MoE layer m.
struct PackContents {
  std::string digest;          // of every byte of the checkpoint
  std::string sampled_digest;  // in packs of earlier releases, with the next
  int64_t modified_ns = 0;
  std::vector<std::vector<moe::ExpertLayout>> layouts;

  int64_t header_bytes() const;
  int64_t file_bytes() const;
};

// Where the records of `contents` lie, from the first bytes of a file that is `file_bytes` long; a
// path is not set. FAILED_PRECONDITION for a pack of another format version or checkpoint,
// DATA_LOSS for bytes that are damaged or cut short: either way one clause without the file's name.
absl::StatusOr<moe::ExpertRecords> ParsePack(absl::Span<const std::byte> header, int64_t file_bytes,
                                             const PackContents& contents);

// The same from a file. Also NOT_FOUND, PERMISSION_DENIED and what else opening gives.
absl::StatusOr<moe::ExpertRecords> ReadPack(const std::string& path, const PackContents& contents);

// Puts contents.digest into a pack of an earlier release, which ReadPack accepts; others are left
// as they are. A crash while it writes leaves either digest, or a header whose checksum does not
// match. Errors: those of opening the file for writing, and of writing.
absl::Status RenewPackDigest(const std::string& path, const PackContents& contents);

// Fills a record of zeros, layout.bytes() long.
using FillRecord = absl::FunctionRef<absl::Status(int layer, int expert, std::byte* record)>;

// Writes a pack, holding two records in memory. It appears under its name when it is complete and
// on the disk, replacing what was there, and not at all otherwise. `progress` is told the finished
// part, from above 0 to 1. Errors: those of `fill`; RESOURCE_EXHAUSTED (the disk is full; the
// message has the bytes needed), NOT_FOUND, PERMISSION_DENIED and others with the file's name.
absl::Status WritePack(const std::string& path, const PackContents& contents, FillRecord fill,
                       absl::FunctionRef<void(double fraction)> progress);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_PACK_FILE_H_
