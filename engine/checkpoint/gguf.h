// GgufFile: a GGUF v2 or v3 checkpoint (one file, or all parts of a split one), mapped read-only
// and checked: every count, length, offset, alignment, overlap and duplicate before it is used.
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

// Adds no data members to Checkpoint, so it may be moved into one. Immutable after Open, and then
// thread-safe.
class GgufFile : public Checkpoint {
 public:
  // Opens all parts of a split checkpoint if `path` is one of them. The files need their usual
  // names (NAME-00001-of-0000N.gguf) and must be in one directory.
  static absl::StatusOr<GgufFile> Open(const std::string& path);

 private:
  GgufFile() = default;
  absl::Status AddPart(MappedFile part);
  absl::Status OpenOtherParts(int64_t count);
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_GGUF_H_
