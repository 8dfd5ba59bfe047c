// WritePack.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/pack_file.h"
#include "engine/checkpoint/pack_header.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "moe/mapped_memory.h"

namespace tidepool::engine {
namespace {

std::string FolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path();
  return folder.empty() ? "." : folder;
}

// A file that has no name until it is complete, so that not even a kill leaves a part of it.
// Thread-compatible.
class UnnamedFile {
 public:
  UnnamedFile(std::string path, int64_t bytes)
      : path_(std::move(path)),
        partial_path_(absl::StrCat(path_, ".", getpid(), ".partial")),
        bytes_(bytes) {}
  ~UnnamedFile() {
    if (file_ >= 0) close(file_);
    if (named_) unlink(partial_path_.c_str());
  }
  UnnamedFile(const UnnamedFile&) = delete;
  UnnamedFile& operator=(const UnnamedFile&) = delete;

  absl::Status Open() {
    struct stat found;
    if (stat(path_.c_str(), &found) == 0 && !S_ISREG(found.st_mode)) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot write ", path_, ": it is there already and not a regular file"));
    }
    // Past the page cache where the file system can: what it holds is worth more than this.
    for (const int direct : {O_DIRECT, 0}) {
      file_ = open(FolderOf(path_).c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | direct, 0666);
      if (file_ >= 0) break;
    }
    if (file_ < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
      file_ = open(partial_path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      named_ = file_ >= 0;
    }
    if (file_ < 0) return Error(errno);
    if (fallocate(file_, 0, 0, static_cast<off_t>(bytes_)) != 0 &&
        (errno == ENOSPC || errno == EFBIG || errno == EDQUOT)) {
      return Error(errno);
    }
    return absl::OkStatus();
  }

  absl::Status Write(const std::byte* data, int64_t bytes, int64_t offset) {
    while (bytes > 0) {
      const ssize_t written =
          pwrite(file_, data, static_cast<size_t>(bytes), static_cast<off_t>(offset));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return Error(errno);
      data += written;
      offset += written;
      bytes -= written;
    }
    return absl::OkStatus();
  }

  // Makes it durable and gives it its name.
  absl::Status Finish() {
    if (fsync(file_) != 0) return Error(errno);
    if (!named_) {
      const std::string self = absl::StrCat("/proc/self/fd/", file_);
      unlink(partial_path_.c_str());  // of another process that once had this number
      if (linkat(AT_FDCWD, self.c_str(), AT_FDCWD, partial_path_.c_str(), AT_SYMLINK_FOLLOW) != 0) {
        return Error(errno);
      }
      named_ = true;
    }
    if (std::rename(partial_path_.c_str(), path_.c_str()) != 0) return Error(errno);
    named_ = false;
    const int folder = open(FolderOf(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0) {
      fsync(folder);
      close(folder);
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Error(int error) const {
    const std::string message =
        absl::StrCat("cannot write ", path_, " (", bytes_, " bytes): ", std::strerror(error));
    if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
      return absl::ResourceExhaustedError(message);
    }
    return absl::Status(absl::ErrnoToStatus(error, "").code(), message);
  }

  const std::string path_;
  const std::string partial_path_;
  const int64_t bytes_;
  int file_ = -1;
  bool named_ = false;  // as partial_path_
};

// Fills records in turn into two buffers; while one is filled, the other is written.
class RecordStream {
 public:
  RecordStream(UnnamedFile* file, moe::MappedMemory memory)
      : file_(file), memory_(std::move(memory)) {}
  ~RecordStream() {
    if (writing_.joinable()) writing_.join();
  }

  // Zeros.
  std::byte* Next(int64_t bytes) {
    std::byte* buffer = memory_.data() + (odd_ ? memory_.size() / 2 : 0);
    odd_ = !odd_;
    std::memset(buffer, 0, static_cast<size_t>(bytes));
    return buffer;
  }

  // Takes the buffer that Next gave last.
  absl::Status Write(const std::byte* buffer, int64_t bytes, int64_t offset) {
    RETURN_IF_ERROR(Wait());
    writing_ = std::thread(
        [this, buffer, bytes, offset] { written_ = file_->Write(buffer, bytes, offset); });
    return absl::OkStatus();
  }

  absl::Status Wait() {
    if (writing_.joinable()) writing_.join();
    return written_;
  }

 private:
  UnnamedFile* const file_;
  moe::MappedMemory memory_;
  bool odd_ = false;
  std::thread writing_;
  absl::Status written_;  // of the thread, read when it is joined
};

absl::Status WriteHeader(const PackContents& contents, const std::vector<PackEntry>& entries,
                         UnnamedFile* file) {
  ASSIGN_OR_RETURN(const moe::MappedMemory header,
                   moe::MappedMemory::Create(contents.header_bytes()));
  PackPreamble preamble = {};
  std::copy(kPackMagic.begin(), kPackMagic.end(), preamble.magic);
  preamble.version = kPackVersion;
  preamble.layers = static_cast<uint32_t>(contents.layouts.size());
  preamble.experts = static_cast<uint32_t>(contents.layouts.front().size());
  CHECK(contents.digest.size() == sizeof(preamble.digest));
  std::copy(contents.digest.begin(), contents.digest.end(), preamble.digest);
  preamble.file_bytes = static_cast<uint64_t>(contents.file_bytes());
  std::memcpy(header.data(), &preamble, sizeof(preamble));
  const size_t table = entries.size() * sizeof(PackEntry);
  std::memcpy(header.data() + sizeof(preamble), entries.data(), table);
  const uint64_t hash = PackHash(absl::MakeConstSpan(header.data(), sizeof(preamble) + table));
  std::memcpy(header.data() + sizeof(preamble) + table, &hash, sizeof(hash));
  return file->Write(header.data(), header.size(), 0);
}

}  // namespace

absl::Status WritePack(const std::string& path, const PackContents& contents, FillRecord fill,
                       absl::FunctionRef<void(double fraction)> progress) {
  CHECK(!contents.layouts.empty() && !contents.layouts.front().empty());
  int64_t largest = 0;
  int64_t count = 0;
  for (const auto& layer : contents.layouts) {
    for (const moe::ExpertLayout& layout : layer) largest = std::max(largest, layout.bytes());
    count += static_cast<int64_t>(layer.size());
  }
  UnnamedFile file(path, contents.file_bytes());
  RETURN_IF_ERROR(file.Open());
  ASSIGN_OR_RETURN(moe::MappedMemory memory, moe::MappedMemory::Create(2 * largest));
  RecordStream stream(&file, std::move(memory));
  std::vector<PackEntry> entries;
  int64_t offset = contents.header_bytes();
  for (size_t layer = 0; layer < contents.layouts.size(); ++layer) {
    for (size_t expert = 0; expert < contents.layouts[layer].size(); ++expert) {
      const int64_t bytes = contents.layouts[layer][expert].bytes();
      std::byte* const record = stream.Next(bytes);
      RETURN_IF_ERROR(fill(static_cast<int>(layer), static_cast<int>(expert), record));
      entries.push_back({static_cast<uint64_t>(bytes), moe::RecordHash(record, bytes)});
      RETURN_IF_ERROR(stream.Write(record, bytes, offset));
      offset += bytes;
      progress(static_cast<double>(entries.size()) / static_cast<double>(count));
    }
  }
  RETURN_IF_ERROR(stream.Wait());
  RETURN_IF_ERROR(WriteHeader(contents, entries, &file));
  return file.Finish();
}

}  // namespace tidepool::engine
