#include "engine/checkpoint/open_checkpoint.h"

#include <sys/stat.h>

#include <utility>

#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/hf/hf_directory.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {

absl::StatusOr<Checkpoint> OpenCheckpoint(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    ASSIGN_OR_RETURN(HfDirectory directory, HfDirectory::Open(path));
    return Checkpoint(std::move(directory));
  }
  ASSIGN_OR_RETURN(GgufFile file, GgufFile::Open(path));
  return Checkpoint(std::move(file));
}

}  // namespace tidepool::engine
