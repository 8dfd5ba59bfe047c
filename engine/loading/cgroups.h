// Finds the cgroups whose limits apply to this process.
#ifndef TIDEPOOL_ENGINE_LOADING_CGROUPS_H_
#define TIDEPOOL_ENGINE_LOADING_CGROUPS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tidepool::engine {

enum class CgroupVersion : uint8_t { kV1, kV2 };

struct CgroupFolder {
  CgroupVersion version = CgroupVersion::kV2;
  std::string path;
};

// Returns the directories of this process's cgroups and all their parents that have the files of
// `controller` ("cpu", "memory"). Some may not exist. In a container, its own group is the root of
// the mount, under any host path. Tests set `root`, a prefix of /proc and /sys. The format of
// /proc/[pid]/cgroup is described in cgroups(7).
std::vector<CgroupFolder> CgroupFolders(absl::string_view controller, const std::string& root);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_LOADING_CGROUPS_H_
