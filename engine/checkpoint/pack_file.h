// The pack file: a checkpoint's experts in the kernels' layout, one aligned record each.
//
//   ASSIGN_OR_RETURN(moe::ExpertRecords records, ReadPack("m.gguf.tidepack", contents));
//
// Little-endian, from the start of the file:
//   char[8] "TIDEPACK", u32 format version, u32 MoE layers, u32 experts of a layer, u32 0,
//   char[32] digest of every byte of the checkpoint (content_digest.h), i64 time of its last
//   change (Checkpoint::modified_ns), u64 bytes of the pack;
//   per expert, layers first: u64 bytes of its record, u64 XXH3-64 of them;
//   u64 XXH3-64 of all that; zeros up to a multiple of 4,096.
// Then the records follow in the same order, without gaps. moe/expert_record.h defines the layout
// of a record, kernels/panel.h the layout of a matrix. Both are part of the format version.
//
// Earlier releases wrote the sampled digest (Checkpoint::SampledDigest) in place of the digest.
// Such a pack is used if the checkpoint's modification time matches the header. Then
// RenewPackDigest writes the digest into it.
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

// The contents of a checkpoint's pack. layouts[m][e] is of expert e of MoE layer m.
struct PackContents {
  std::string digest;          // of every byte of the checkpoint
  std::string sampled_digest;  // used with modified_ns for packs of earlier releases
  int64_t modified_ns = 0;
  std::vector<std::vector<moe::ExpertLayout>> layouts;

  int64_t header_bytes() const;
  int64_t file_bytes() const;
};

// Returns the position of each record of `contents`, from the first bytes of a file that is
// `file_bytes` long. Does not set the path. FAILED_PRECONDITION if the pack is of another format
// version or checkpoint, DATA_LOSS if the bytes are damaged or truncated. The message is one clause
// without the file's name.
absl::StatusOr<moe::ExpertRecords> ParsePack(absl::Span<const std::byte> header, int64_t file_bytes,
                                             const PackContents& contents);

// Same for a file. Also returns NOT_FOUND, PERMISSION_DENIED and other errors of opening it.
absl::StatusOr<moe::ExpertRecords> ReadPack(const std::string& path, const PackContents& contents);

// Writes contents.digest into a pack of an earlier release, which ReadPack accepts. Does not change
// other packs. If a crash interrupts the write, the pack has one of the two digests, or a header
// whose checksum does not match. Errors: those of opening the file for writing, and of writing.
absl::Status RenewPackDigest(const std::string& path, const PackContents& contents);

// Fills a zeroed record of layout.bytes() bytes.
using FillRecord = absl::FunctionRef<absl::Status(int layer, int expert, std::byte* record)>;

// Writes a pack, with two records in memory at a time. The file appears under its name, and
// replaces an existing one, only when it is complete and on the disk. Calls `progress` with the
// finished part, above 0 up to 1. Errors: those of `fill`; RESOURCE_EXHAUSTED (the disk is full;
// the message has the required bytes), NOT_FOUND, PERMISSION_DENIED and others with the file's
// name.
absl::Status WritePack(const std::string& path, const PackContents& contents, FillRecord fill,
                       absl::FunctionRef<void(double fraction)> progress);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_PACK_FILE_H_
