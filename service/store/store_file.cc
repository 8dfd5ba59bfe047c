#include "service/store/store_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace tidepool::service {
namespace {

absl::Status Gone(const std::string& path, const std::string& file) {
  return absl::UnavailableError(absl::StrCat(
      "session store '", path, "': ", file,
      " was deleted, renamed or replaced while the server has it open, so nothing is written to it "
      "any more; put the file back, or restart the server to go on with what is there"));
}

}  // namespace

StoreFile::StoreFile(std::string path)
    : path_(std::move(path)), in_memory_(path_ == ":memory:"), store_(Of(path_)) {}

std::optional<StoreFile::Identity> StoreFile::Of(const std::string& path) {
  struct stat found = {};
  if (stat(path.c_str(), &found) != 0) return std::nullopt;
  return Identity{.device = found.st_dev, .inode = found.st_ino};
}

absl::Status StoreFile::Check() {
  if (in_memory_) return absl::OkStatus();
  const std::string log = absl::StrCat(path_, "-wal");
  if (Of(path_) != store_) return Gone(path_, path_);
  const std::optional<Identity> now = Of(log);
  if (!log_.has_value()) log_ = now;
  return now == log_ ? absl::OkStatus() : Gone(path_, log);
}

void StoreFile::Reserve() {
  if (in_memory_) return;
  const int file =
      open(absl::StrCat(path_, "-reserve").c_str(), O_CREAT | O_CLOEXEC | O_WRONLY, 0600);
  if (file < 0) return;
  if (posix_fallocate(file, 0, kReserveBytes) != 0) {
    [[maybe_unused]] const int emptied = ftruncate(file, 0);
  }
  close(file);
}

bool StoreFile::ReleaseReserve() {
  struct stat found = {};
  const std::string reserve = absl::StrCat(path_, "-reserve");
  return !in_memory_ && stat(reserve.c_str(), &found) == 0 && found.st_size > 0 &&
         truncate(reserve.c_str(), 0) == 0;
}

}  // namespace tidepool::service
