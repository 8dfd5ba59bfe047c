// OpenCheckpoint: a checkpoint of any format.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_OPEN_CHECKPOINT_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_OPEN_CHECKPOINT_H_

#include <string>

#include "absl/status/statusor.h"
#include "engine/checkpoint/checkpoint.h"

namespace tidepool::engine {

// A directory is a Hugging Face checkpoint, anything else a GGUF file. Errors: those of
// HfDirectory::Open and GgufFile::Open.
absl::StatusOr<Checkpoint> OpenCheckpoint(const std::string& path);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_OPEN_CHECKPOINT_H_
