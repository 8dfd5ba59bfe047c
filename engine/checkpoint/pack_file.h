// The pack file. It has a checkpoint's experts in the kernels' layout, with one aligned record for
// each expert.
//
//   ASSIGN_OR_RETURN(moe::ExpertRecords records, ReadPack("m.gguf.tidepack", contents));
//
// Little-endian, from the start of the file:
//   char[8] "TIDEPACK", u32 format version, u32 MoE layers, u32 experts of a layer, u32 0,
//   char[32] digest of every byte of the checkpoint (content_digest.h),
//   i64 time of the checkpoint's last change (Checkpoint::modified_ns), u64 bytes of the pack;
//   for each expert, ordered by layer, then by expert: u64 size of its record in bytes,
//   u64 XXH3-64 of the record;
//   u64 XXH3-64 of everything before; zeros up to a multiple of 4,096.
// Then the records follow in the same order, without gaps. moe/expert_record.h defines the layout
// of a record, and kernels/panel.h defines the layout of a matrix. If either layout changes, the
// format version must change.
//
// Earlier releases wrote the sampled digest (Checkpoint::SampledDigest) in place of the digest of
// every byte. Such a pack is used if the checkpoint's modification time matches the header.
// RenewPackDigest then writes the digest of every byte into the pack.
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

// The contents of a pack, except for the records, and the checkpoint that the pack belongs to.
struct PackContents {
  std::string digest;          // digest of every byte of the checkpoint
  std::string sampled_digest;  // with modified_ns, identifies packs of earlier releases
  int64_t modified_ns = 0;
  std::vector<std::vector<moe::ExpertLayout>> layouts;

  int64_t header_bytes() const;
  int64_t file_bytes() const;
};

// Parses `header`, the first bytes of a pack of `file_bytes` bytes, and returns the position of
// each record. Does not set the path. Returns FAILED_PRECONDITION if the pack has another format
// version or belongs to another checkpoint, and DATA_LOSS if the bytes are damaged or truncated.
// The message is one clause without the file's name.
absl::StatusOr<moe::ExpertRecords> ParsePack(absl::Span<const std::byte> header, int64_t file_bytes,
                                             const PackContents& contents);

// Like ParsePack, for a file, and sets the path. Also returns the errors of opening the file, such
// as NOT_FOUND and PERMISSION_DENIED.
absl::StatusOr<moe::ExpertRecords> ReadPack(const std::string& path, const PackContents& contents);

// Writes contents.digest into a pack of an earlier release, which ReadPack accepts. Does not change
// other packs. If a crash interrupts the write, the pack has one of the two digests, or a header
// whose checksum does not match. Returns the errors of opening the file for writing, and of the
// write.
absl::Status RenewPackDigest(const std::string& path, const PackContents& contents);

// A function that writes an expert into `record`, which has layout.bytes() zeroed bytes.
using FillRecord = absl::FunctionRef<absl::Status(int layer, int expert, std::byte* record)>;

// Writes a pack. Two records are in memory at a time. The file gets its final name, and replaces an
// existing file, only when it is complete and on the disk. Calls `progress` with the finished
// fraction, which is above 0 and at most 1. Returns the errors of `fill`; RESOURCE_EXHAUSTED with
// the required bytes if the disk is full; and NOT_FOUND, PERMISSION_DENIED and others with the
// file's name.
absl::Status WritePack(const std::string& path, const PackContents& contents, FillRecord fill,
                       absl::FunctionRef<void(double fraction)> progress);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_PACK_FILE_H_
