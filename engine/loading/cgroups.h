// Where the limits stand that a container, or an operator, set for this process.
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

// Folders of the groups that this process is in and of all above them, where they have the files of
// `controller` ("cpu", "memory") if that is in use; some may not exist. A container sees its own
// group as the mount's root, under whatever path its host knows it. `root` stands in front of /proc
// and /sys, for tests. Format: cgroups(7) of /proc/[pid]/cgroup.
std::vector<CgroupFolder> CgroupFolders(absl::string_view controller, const std::string& root);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_LOADING_CGROUPS_H_
