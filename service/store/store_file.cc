#include "service/store/store_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace tidepool::service {
namespace {

// Checkpoints keep the log shorter than this. It is longer only after a very large transaction, or
// if checkpoints fail.
constexpr int kMaxFramesRead = 2000;

absl::Status Unusable(const std::string& path, const std::string& file, absl::string_view what,
                      absl::string_view remedy) {
  return absl::UnavailableError(
      absl::StrCat("session store '", path, "': ", file, " was ", what,
                   " while the server has it open, so writes are refused; ", remedy));
}

absl::Status Gone(const std::string& path, const std::string& file) {
  return Unusable(path, file, "deleted, renamed or replaced",
                  "put the file back, or restart the server to use the present files");
}

absl::Status Overwritten(const std::string& path, const std::string& file) {
  return Unusable(
      path, file, "truncated or overwritten by another program",
      "stop the server, restore a backup of the file without its -wal, and start again");
}

}  // namespace

StoreFile::StoreFile(std::string path)
    : path_(std::move(path)), in_memory_(path_ == ":memory:"), store_(Of(path_, nullptr)) {}

std::optional<StoreFile::Identity> StoreFile::Of(const std::string& path, off_t* size) {
  struct stat found = {};
  if (stat(path.c_str(), &found) != 0) return std::nullopt;
  if (size != nullptr) *size = found.st_size;
  return Identity{.device = found.st_dev, .inode = found.st_ino};
}

void StoreFile::DamageLog() {
  damaged_ = Overwritten(path_, log());
  log_is_damaged_ = true;
}

absl::Status StoreFile::CheckSizes(int64_t log_bytes) {
  if (in_memory_ || !damaged_.ok()) return damaged_;
  off_t size = 0;
  if (Of(path_, &size) != store_) return Gone(path_, path_);
  off_t log_size = 0;
  const std::optional<Identity> now = Of(log(), &log_size);
  if (!log_.has_value()) log_ = now;
  if (now != log_) return Gone(path_, log());
  if (size != size_.value_or(size)) damaged_ = Overwritten(path_, path_);
  if (log_size < log_bytes) DamageLog();
  size_ = size;
  return damaged_;
}

absl::Status StoreFile::Check(const SqliteDb& db) {
  RETURN_IF_ERROR(CheckSizes(db.log_bytes()));
  if (in_memory_) return damaged_;
  std::string start = db.FileStart();
  if (start_.has_value() && start != *start_) damaged_ = Overwritten(path_, path_);
  start_ = std::move(start);
  const std::string log_start = db.LogStart();
  if (log_start_.empty()) log_start_ = log_start;
  const bool log_stays = log_start.empty() || log_start == log_start_;
  if (!log_stays || !db.LogIsWhole(kMaxFramesRead)) DamageLog();
  return damaged_;
}

void StoreFile::Written(const SqliteDb& db) {
  start_ = db.FileStart();
  off_t size = 0;
  if (Of(path_, &size) == store_) size_ = size;
  // SQLite may start the log again, with another header.
  log_start_.clear();
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
