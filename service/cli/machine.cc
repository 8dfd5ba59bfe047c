#include "service/cli/machine.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace tidepool::service {
namespace {

// The number that a file begins with; -1: none ("max" is none).
int64_t NumberIn(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  int64_t number = 0;
  return file >> word && absl::SimpleAtoi(word, &number) ? number : -1;
}

// What stands behind `name` and a colon in a file of such lines; "": no such line.
std::string FieldOf(const std::string& path, absl::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(line, absl::MaxSplits(':', 1));
    if (absl::StripAsciiWhitespace(field.first) == name) {
      return std::string(absl::StripAsciiWhitespace(field.second));
    }
  }
  return "";
}

// A field such as "4000 kB" in bytes; -1: there is none.
int64_t KibField(const std::string& path, absl::string_view name) {
  const std::string text = FieldOf(path, name);
  int64_t kib = 0;
  return absl::SimpleAtoi(text.substr(0, text.find(' ')), &kib) ? kib * 1024 : -1;
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
  int64_t available = KibField(absl::StrCat(root, "/proc/meminfo"), "MemAvailable");
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

std::string ProcessorName(const std::string& root) {
  const std::string name = FieldOf(absl::StrCat(root, "/proc/cpuinfo"), "model name");
  return name.empty() ? "unknown processor" : name;
}

int64_t PeakResidentBytes(const std::string& root) {
  return std::max<int64_t>(0, KibField(absl::StrCat(root, "/proc/self/status"), "VmHWM"));
}

}  // namespace tidepool::service
