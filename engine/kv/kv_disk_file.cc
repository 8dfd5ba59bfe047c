#include "engine/kv/kv_disk_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {
namespace {

// Repeats transfers that were interrupted or incomplete. Returns the number of bytes transferred,
// which is less than `bytes` only at the end of the file. On failure, returns -1 and sets errno.
template <typename Transfer>
int64_t TransferAll(int64_t bytes, const Transfer& transfer) {
  int64_t done = 0;
  while (done < bytes) {
    const ssize_t moved = transfer(done);
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0) return -1;
    if (moved == 0) break;
    done += moved;
  }
  return done;
}

absl::Status SystemError(int error, absl::string_view what, const std::string& path) {
  return absl::ErrnoToStatus(error, absl::StrCat("cannot ", what, " ", path));
}

class RealFile final : public KvDiskFile {
 public:
  RealFile(std::string path, int file) : path_(std::move(path)), file_(file), direct_(file) {}

  ~RealFile() override {
    if (direct_ != file_) close(direct_);
    close(file_);  // closing the file also releases its lock
  }

  absl::Status Prepare() {
    struct stat status = {};
    if (fstat(file_, &status) != 0) return SystemError(errno, "read the status of", path_);
    if (!S_ISREG(status.st_mode)) {
      return absl::InvalidArgumentError(absl::StrCat(path_, " is not a regular file"));
    }
    if (flock(file_, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return SystemError(errno, "lock", path_);
      return absl::FailedPreconditionError(absl::StrCat(
          path_,
          " is used by another process; give each process its own folder with --cache-dir DIR"));
    }
    // If the file system does not support direct I/O, use the page cache.
    const int direct = open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_DIRECT);
    if (direct >= 0) direct_ = direct;
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> ReadSmall(int64_t offset, int64_t bytes) override {
    std::string content(bytes, '\0');
    const int64_t got = TransferAll(bytes, [&](int64_t done) {
      return pread(file_, content.data() + done, bytes - done, offset + done);
    });
    if (got < 0) return SystemError(errno, "read", path_);
    content.resize(got);
    return content;
  }

  absl::Status WriteSmall(int64_t offset, absl::string_view bytes) override {
    const int64_t put = TransferAll(bytes.size(), [&](int64_t done) {
      return pwrite(file_, bytes.data() + done, bytes.size() - done, offset + done);
    });
    return put < 0 ? SystemError(errno, "write", path_) : absl::OkStatus();
  }

  absl::Status Read(int64_t offset, absl::Span<std::byte> into) override {
    const auto bytes = static_cast<int64_t>(into.size());
    const int64_t got = Direct(bytes, [&](int64_t done) {
      return pread(direct_, into.data() + done, bytes - done, offset + done);
    });
    if (got < 0) return SystemError(errno, "read", path_);
    if (got < bytes) return absl::DataLossError(absl::StrCat(path_, " was truncated"));
    return absl::OkStatus();
  }

  absl::Status Write(int64_t offset, absl::Span<const std::byte> data) override {
    const auto bytes = static_cast<int64_t>(data.size());
    const int64_t put = Direct(bytes, [&](int64_t done) {
      return pwrite(direct_, data.data() + done, bytes - done, offset + done);
    });
    return put < 0 ? SystemError(errno, "write", path_) : absl::OkStatus();
  }

  absl::Status Clear() override {
    return ftruncate(file_, 0) == 0 ? absl::OkStatus() : SystemError(errno, "empty", path_);
  }

 private:
  // If the blocks of the disk are larger than kKvDiskPage, direct I/O fails here. Then use the page
  // cache.
  template <typename Transfer>
  int64_t Direct(int64_t bytes, const Transfer& transfer) {
    int64_t done = TransferAll(bytes, transfer);
    if (done >= 0 || errno != EINVAL || direct_ == file_) return done;
    close(direct_);
    direct_ = file_;
    return TransferAll(bytes, transfer);
  }

  const std::string path_;
  const int file_;
  int direct_;  // opened with O_DIRECT, or the same as file_
};

absl::Status CannotMake(const std::string& path, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("--kv-disk cannot create ", path, ": ", why,
                                                 "; choose another folder with --cache-dir DIR"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<KvDiskFile>> KvDiskFile::Open(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error) return CannotMake(path, error.message());
  // KV reveals the prompts of users, so only the owner may read the file.
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return CannotMake(path, std::strerror(errno));
  auto opened = std::make_unique<RealFile>(path, file);
  RETURN_IF_ERROR(opened->Prepare());
  return opened;
}

}  // namespace tidepool::engine
