// OpenCheckpoint: opens a checkpoint of any supported format.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_OPEN_CHECKPOINT_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_OPEN_CHECKPOINT_H_

#include <string>

#include "absl/status/statusor.h"
#include "engine/checkpoint/checkpoint.h"

namespace tidepool::engine {

// Opens a directory as a Hugging Face checkpoint and any other path as a GGUF file. Returns the
// errors of HfDirectory::Open and GgufFile::Open.
absl::StatusOr<Checkpoint> OpenCheckpoint(const std::string& path);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_OPEN_CHECKPOINT_H_
