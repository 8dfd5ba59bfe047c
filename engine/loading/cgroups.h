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

// Returns the directories of this process's cgroups and of all their parents, in the hierarchies
// that have `controller` ("cpu" or "memory"). Some of the directories may not exist. In a
// container, the process's own cgroup is at the root of the mount, whatever path it has on the
// host. Tests set `root`, a prefix of /proc and /sys. cgroups(7) describes the format of
// /proc/[pid]/cgroup.
std::vector<CgroupFolder> CgroupFolders(absl::string_view controller, const std::string& root);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_LOADING_CGROUPS_H_
