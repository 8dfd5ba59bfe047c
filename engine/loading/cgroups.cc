#include "engine/loading/cgroups.h"

#include <algorithm>
#include <fstream>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace tidepool::engine {
namespace {

// Adds the cgroup at `path` in `mount`, and all its parents.
void AddGroups(CgroupVersion version, const std::string& mount, std::string path,
               std::vector<CgroupFolder>* folders) {
  while (path.size() > 1) {
    folders->push_back({version, mount + path});
    path.resize(path.rfind('/'));
  }
  folders->push_back({version, mount});
}

}  // namespace

std::vector<CgroupFolder> CgroupFolders(absl::string_view controller, const std::string& root) {
  const std::string groups = root + "/sys/fs/cgroup";
  std::vector<CgroupFolder> folders;
  std::ifstream file(root + "/proc/self/cgroup");
  // A line has the form "ID:CONTROLLERS:PATH". For cgroup v2, CONTROLLERS is empty.
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3 || !absl::StartsWith(parts[2], "/")) continue;
    if (parts[1].empty()) {
      AddGroups(CgroupVersion::kV2, groups, parts[2], &folders);
      continue;
    }
    const std::vector<absl::string_view> controllers = absl::StrSplit(parts[1], ',');
    if (std::find(controllers.begin(), controllers.end(), controller) == controllers.end()) {
      continue;
    }
    // If several controllers are mounted together, there is a directory with their joined names,
    // and a link for each single name.
    for (const std::string& name : std::set<std::string>{std::string(controller), parts[1]}) {
      AddGroups(CgroupVersion::kV1, absl::StrCat(groups, "/", name), parts[2], &folders);
    }
  }
  return folders;
}

}  // namespace tidepool::engine
