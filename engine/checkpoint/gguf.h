// GgufFile: a checkpoint in GGUF v2 or v3, mapped read-only. It is one file, or all parts of a
// split file. Every count, length, offset, alignment, overlap and duplicate is checked before use.
//
//   ASSIGN_OR_RETURN(GgufFile file, GgufFile::Open("model.gguf"));
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_GGUF_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_GGUF_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/checkpoint/checkpoint.h"

namespace tidepool::engine {

// Adds no data members to Checkpoint, so it can be moved into a Checkpoint. Immutable after Open,
// and from then on thread-safe.
class GgufFile : public Checkpoint {
 public:
  // Opens a file. If the file is one part of a split checkpoint, opens all parts. The parts must
  // have their usual names (NAME-00001-of-0000N.gguf) and be in one directory.
  static absl::StatusOr<GgufFile> Open(const std::string& path);

 private:
  GgufFile() = default;
  absl::Status AddPart(MappedFile part);
  absl::Status OpenOtherParts(int64_t count);
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_GGUF_H_
