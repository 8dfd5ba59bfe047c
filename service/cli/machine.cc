#include "service/cli/machine.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace tidepool::service {
namespace {

// The number that a file begins with; -1: none ("max" is none).
int64_t NumberIn(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  int64_t number = 0;
  return file >> word && absl::SimpleAtoi(word, &number) ? number : -1;
}

int64_t MemAvailable(const std::string& root) {
  std::ifstream file(absl::StrCat(root, "/proc/meminfo"));
  std::string name;
  int64_t kib = 0;
  std::string rest;
  while (file >> name >> kib && std::getline(file, rest)) {
    if (name == "MemAvailable:") return kib * 1024;
  }
  return -1;
}

// What the group at `folder` and those above it leave, up to `top`.
int64_t CgroupLeft(const std::string& top, std::string path, const char* limit, const char* used) {
  int64_t left = std::numeric_limits<int64_t>::max();
  while (true) {
    const std::string folder = absl::StrCat(top, path == "/" ? "" : path, "/");
    const int64_t most = NumberIn(folder + limit);
    const int64_t taken = NumberIn(folder + used);
    if (most >= 0 && taken >= 0) left = std::min(left, std::max<int64_t>(0, most - taken));
    const size_t slash = path.rfind('/');
    if (path.empty() || slash == std::string::npos) return left;
    path.resize(slash);
  }
}

}  // namespace

int64_t AvailableMemoryBytes(const std::string& root) {
  int64_t available = MemAvailable(root);
  if (available < 0) available = std::numeric_limits<int64_t>::max();
  std::ifstream groups(absl::StrCat(root, "/proc/self/cgroup"));
  for (std::string line; std::getline(groups, line);) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    if (fields[1].empty()) {
      available = std::min(available, CgroupLeft(absl::StrCat(root, "/sys/fs/cgroup"), fields[2],
                                                 "memory.max", "memory.current"));
    } else if (fields[1] == "memory") {
      available =
          std::min(available, CgroupLeft(absl::StrCat(root, "/sys/fs/cgroup/memory"), fields[2],
                                         "memory.limit_in_bytes", "memory.usage_in_bytes"));
    }
  }
  return available == std::numeric_limits<int64_t>::max() ? 0 : available;
}

}  // namespace tidepool::service
