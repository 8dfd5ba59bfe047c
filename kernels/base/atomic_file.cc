#include "kernels/base/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/random_hex.h"
#include "kernels/base/status_macros.h"

namespace tidepool::base {
namespace {

std::string FolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path();
  return folder.empty() ? "." : folder;
}

constexpr size_t kPartialDigits = 8;
constexpr absl::string_view kPartialEnd = ".partial";

// Returns the path of an unfinished file. It contains a random number, and not the process id. In a
// container, the process id is the same at each start, so a file that a killed process left would
// block every later run.
std::string PartialName(const std::string& path) {
  return absl::StrCat(path, ".", RandomHex(kPartialDigits), kPartialEnd);
}

// Returns whether PartialName may return `name` for a file with the name `base`.
bool IsPartialName(absl::string_view name, absl::string_view base) {
  if (name.size() != base.size() + 1 + kPartialDigits + kPartialEnd.size()) return false;
  if (!absl::StartsWith(name, base) || !absl::EndsWith(name, kPartialEnd)) return false;
  if (name[base.size()] != '.') return false;
  const absl::string_view digits = name.substr(base.size() + 1, kPartialDigits);
  return std::all_of(digits.begin(), digits.end(), absl::ascii_isxdigit);
}

// Locks a file that is being written. The lock is released when the file is closed or the process
// is killed. Returns false if another process has the lock. Returns true also if the file system
// has no locks. (RemoveIfLeftOver then removes no file.)
bool LockToWrite(int file) { return flock(file, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK; }

bool HasName(int file) {
  struct stat found;
  return fstat(file, &found) != 0 || found.st_nlink > 0;
}

void RemoveIfLeftOver(const std::string& partial) {
  const int file = open(partial.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return;
  struct stat opened;
  struct stat named;
  if (flock(file, LOCK_EX | LOCK_NB) == 0 && fstat(file, &opened) == 0 && S_ISREG(opened.st_mode) &&
      lstat(partial.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
      opened.st_dev == named.st_dev) {
    unlink(partial.c_str());
  }
  close(file);
}

// Removes the unfinished files of `path` that killed processes left.
void RemoveLeftOvers(const std::string& path) {
  const std::string base = std::filesystem::path(path).filename();
  std::vector<std::string> partials;
  std::error_code error;
  std::filesystem::directory_iterator entries(FolderOf(path), error);
  for (; entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    if (IsPartialName(entries->path().filename().string(), base)) {
      partials.push_back(entries->path());
    }
  }
  for (const std::string& partial : partials) RemoveIfLeftOver(partial);
}

bool IsFull(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

// Returns a path of an open file that has no name.
std::string SelfPath(int file) { return absl::StrCat("/proc/self/fd/", file); }

}  // namespace

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::Create(const std::string& path,
                                                               const AtomicFileOptions& options) {
  struct stat found;
  if (stat(path.c_str(), &found) == 0) {
    // Renaming over a device or a pipe would replace that device or pipe.
    if (!S_ISREG(found.st_mode)) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot write ", path, ": it exists and is not a regular file"));
    }
    if (options.existing == ExistingFile::kRefuse) {
      return absl::AlreadyExistsError(absl::StrCat(path, " already exists"));
    }
  }
  std::unique_ptr<AtomicFile> file(new AtomicFile(path, options));
  RETURN_IF_ERROR(file->Open());
  return file;
}

AtomicFile::AtomicFile(std::string path, const AtomicFileOptions& options)
    : path_(std::move(path)), options_(options) {}

AtomicFile::~AtomicFile() {
  if (file_ >= 0) close(file_);
  if (!partial_path_.empty()) unlink(partial_path_.c_str());
}

absl::Status AtomicFile::Open() {
  RemoveLeftOvers(path_);
  const int direct = options_.cache == PageCache::kBypass ? O_DIRECT : 0;
  if (options_.unfinished == UnfinishedFile::kUnnamed) {
    for (const int flags : {direct, 0}) {
      file_ = open(FolderOf(path_).c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | flags, options_.mode);
      if (file_ >= 0) break;
    }
    // Without /proc, the file cannot get its name at the end.
    if (file_ >= 0 && access(SelfPath(file_).c_str(), F_OK) != 0) close(std::exchange(file_, -1));
  }
  if (file_ >= 0) {
    LockToWrite(file_);  // the lock also applies to the name that the file gets at the end
  } else {
    // Try again with a name. If that fails with the same error, OpenNamed reports it.
    RETURN_IF_ERROR(OpenNamed());
  }
  if (options_.bytes > 0 && fallocate(file_, 0, 0, static_cast<off_t>(options_.bytes)) != 0 &&
      IsFull(errno)) {
    return Error(errno);
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::OpenNamed() {
  const int direct = options_.cache == PageCache::kBypass ? O_DIRECT : 0;
  constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;
  while (true) {
    partial_path_ = PartialName(path_);
    file_ = open(partial_path_.c_str(), kFlags | direct, options_.mode);
    // Some file systems refuse direct writes only after they have created the file.
    if (file_ < 0 && direct != 0 && errno == EINVAL) {
      unlink(partial_path_.c_str());
      file_ = open(partial_path_.c_str(), kFlags, options_.mode);
    }
    if (file_ >= 0) {
      if (LockToWrite(file_) && HasName(file_)) return absl::OkStatus();
      // Another process removed the file as left over before this process locked it.
      close(std::exchange(file_, -1));
      continue;
    }
    const int error = errno;
    const absl::Status status = Error(error);
    // If a file with this name exists, it belongs to another process. This object must not remove
    // it.
    partial_path_.clear();
    if (error != EEXIST) return status;
  }
}

absl::Status AtomicFile::Append(const void* data, int64_t bytes) {
  RETURN_IF_ERROR(WriteAt(data, bytes, position_));
  position_ += bytes;
  return absl::OkStatus();
}

absl::Status AtomicFile::WriteAt(const void* data, int64_t bytes, int64_t offset) {
  CHECK(file_ >= 0) << "the file is finished";
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written =
        pwrite(file_, at, static_cast<size_t>(bytes), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Error(errno);
    at += written;
    offset += written;
    bytes -= written;
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::Finish() {
  CHECK(file_ >= 0) << "the file is finished";
  // The data must be on the disk before the file replaces another one.
  if (fsync(file_) != 0) return Error(errno);
  RETURN_IF_ERROR(Place());
  close(std::exchange(file_, -1));
  const int folder = open(FolderOf(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    fsync(folder);
    close(folder);
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::Name() {
  while (true) {
    const std::string name = PartialName(path_);
    if (linkat(AT_FDCWD, SelfPath(file_).c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0) {
      partial_path_ = name;
      return absl::OkStatus();
    }
    if (errno != EEXIST) return Error(errno);
  }
}

absl::Status AtomicFile::Place() {
  // Gives a file without a name its final name, or renames a file that has a temporary name.
  if (partial_path_.empty() && options_.existing == ExistingFile::kRefuse) {
    return linkat(AT_FDCWD, SelfPath(file_).c_str(), AT_FDCWD, path_.c_str(), AT_SYMLINK_FOLLOW) ==
                   0
               ? absl::OkStatus()
               : Error(errno);
  }
  if (partial_path_.empty()) RETURN_IF_ERROR(Name());
  bool placed = false;
  if (options_.existing == ExistingFile::kRefuse) {
    placed =
        renameat2(AT_FDCWD, partial_path_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE) == 0;
    // EINVAL means that the file system does not support this rename
    if (!placed && errno != EINVAL) return Error(errno);
  }
  if (!placed && std::rename(partial_path_.c_str(), path_.c_str()) != 0) return Error(errno);
  partial_path_.clear();
  return absl::OkStatus();
}

absl::Status AtomicFile::Error(int error) const {
  std::string message = absl::StrCat("cannot write ", path_);
  if (options_.bytes > 0) absl::StrAppend(&message, " (", options_.bytes, " bytes)");
  if (!partial_path_.empty())
    absl::StrAppend(&message, ", through the temporary file ", partial_path_);
  absl::StrAppend(&message, ": ", std::strerror(error));
  if (IsFull(error)) return absl::ResourceExhaustedError(message);
  return absl::Status(absl::ErrnoToStatus(error, "").code(), message);
}

}  // namespace tidepool::base
