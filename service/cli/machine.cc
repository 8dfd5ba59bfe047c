#include "service/cli/machine.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "engine/loading/cgroups.h"

namespace tidepool::service {
namespace {

// Returns the number at the beginning of a file. -1 if the file begins with another word, such as
// "max".
int64_t NumberIn(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  int64_t number = 0;
  return file >> word && absl::SimpleAtoi(word, &number) ? number : -1;
}

// Returns the text after "`name`:" in a file of such lines. "" if there is no such line.
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

// Returns a field such as "4000 kB" in bytes. -1 if it is missing.
int64_t KibField(const std::string& path, absl::string_view name) {
  const std::string text = FieldOf(path, name);
  int64_t kib = 0;
  return absl::SimpleAtoi(text.substr(0, text.find(' ')), &kib) ? kib * 1024 : -1;
}

// Returns the number after `name` in a file of lines such as "inactive_file 4096". 0 if it is
// missing.
int64_t StatField(const std::string& path, absl::string_view name) {
  std::ifstream file(path);
  std::string field;
  int64_t number = 0;
  while (file >> field >> number) {
    if (field == name) return number;
  }
  return 0;
}

// Returns the bytes that a cgroup still allows. nullopt if the cgroup has no limit.
std::optional<int64_t> CgroupLeft(const engine::CgroupFolder& group) {
  const bool is_v2 = group.version == engine::CgroupVersion::kV2;
  int64_t most = NumberIn(group.path + (is_v2 ? "/memory.max" : "/memory.limit_in_bytes"));
  // Above memory.high, the kernel does not kill the process, but slows down its allocations.
  const int64_t throttled = is_v2 ? NumberIn(group.path + "/memory.high") : -1;
  if (throttled >= 0) most = most < 0 ? throttled : std::min(most, throttled);
  const int64_t taken =
      NumberIn(group.path + (is_v2 ? "/memory.current" : "/memory.usage_in_bytes"));
  if (most < 0 || taken < 0) return std::nullopt;
  // The cgroup counts page cache as used, but the kernel frees inactive cache before it refuses an
  // allocation. Without this, a model file that was just read would leave no room for its own
  // weights.
  const int64_t idle =
      StatField(group.path + "/memory.stat", is_v2 ? "inactive_file" : "total_inactive_file");
  return std::max<int64_t>(0, most - std::max<int64_t>(0, taken - idle));
}

}  // namespace

std::optional<int64_t> AvailableMemoryBytes(const std::string& root) {
  std::optional<int64_t> available;
  const int64_t machine = KibField(absl::StrCat(root, "/proc/meminfo"), "MemAvailable");
  if (machine >= 0) available = machine;
  for (const engine::CgroupFolder& group : engine::CgroupFolders("memory", root)) {
    const std::optional<int64_t> left = CgroupLeft(group);
    if (left.has_value()) available = std::min(available.value_or(*left), *left);
  }
  return available;
}

std::string ProcessorName(const std::string& root) {
  const std::string name = FieldOf(absl::StrCat(root, "/proc/cpuinfo"), "model name");
  return name.empty() ? "unknown processor" : name;
}

int64_t PeakResidentBytes(const std::string& root) {
  return std::max<int64_t>(0, KibField(absl::StrCat(root, "/proc/self/status"), "VmHWM"));
}

}  // namespace tidepool::service
