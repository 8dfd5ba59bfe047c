#include "service/store/store_witness.h"

#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "service/store/row_hash.h"

namespace tidepool::service {
namespace {

constexpr absl::string_view kMagic = "tidepool-commits-1";
constexpr size_t kMaxLine = 256;

}  // namespace

std::string FormatWitness(const WitnessedCommit& commit) {
  // All lines have the same length, so that each line overwrites the whole line before it.
  const std::string text = absl::StrFormat("%s %s %020d %020d", kMagic, commit.store_id,
                                           commit.commits, commit.sessions);
  return absl::StrCat(text, " ", HashBytes(text).Hex(), "\n");
}

std::optional<WitnessedCommit> ParseWitness(absl::string_view line) {
  const std::vector<absl::string_view> words = absl::StrSplit(line.substr(0, line.find('\n')), ' ');
  WitnessedCommit commit;
  if (words.size() != 5 || !absl::SimpleAtoi(words[2], &commit.commits) ||
      !absl::SimpleAtoi(words[3], &commit.sessions)) {
    return std::nullopt;
  }
  commit.store_id = std::string(words[1]);
  // If the line is damaged, it differs from the line that its values would give.
  if (!absl::StartsWith(line, FormatWitness(commit))) return std::nullopt;
  return commit;
}

StoreWitness::StoreWitness(absl::string_view store_path)
    : path_(store_path == ":memory:" ? "" : absl::StrCat(store_path, "-commits")) {}

StoreWitness::~StoreWitness() {
  if (file_ >= 0) close(file_);
}

std::optional<WitnessedCommit> StoreWitness::Read() const {
  std::ifstream file(path_, std::ios::binary);
  std::string line(kMaxLine, '\0');
  file.read(line.data(), static_cast<std::streamsize>(line.size()));
  line.resize(static_cast<size_t>(file.gcount()));
  return ParseWitness(line);
}

void StoreWitness::Write(const WitnessedCommit& commit) {
  if (path_.empty()) return;
  if (file_ < 0) file_ = open(path_.c_str(), O_CREAT | O_CLOEXEC | O_WRONLY, 0600);
  if (file_ < 0) return;
  const std::string line = FormatWitness(commit);
  // If only a part of the line is written, the line counts as damaged, and the file as missing.
  [[maybe_unused]] const ssize_t written = pwrite(file_, line.data(), line.size(), 0);
}

}  // namespace tidepool::service
