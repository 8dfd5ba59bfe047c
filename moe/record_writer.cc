#include "moe/record_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tidepool::moe {
namespace {

absl::Status Error(const std::string& path, int error) {
  return absl::Status(absl::ErrnoToStatus(error, "").code(),
                      absl::StrCat(path, ": ", std::strerror(error)));
}

}  // namespace

RecordWriter::RecordWriter(const std::string& path, std::function<void(const absl::Status&)> failed)
    : path_(path), failed_(std::move(failed)) {
  struct stat found;
  // inode_ stays 0, which no file has, so nothing will be written
  if (stat(path.c_str(), &found) != 0) return;
  device_ = found.st_dev;
  inode_ = found.st_ino;
}

RecordWriter::~RecordWriter() {
  {
    base::MutexLock lock(&mutex_);
    stop_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void RecordWriter::Write(const RecordRead& read) {
  base::MutexLock lock(&mutex_);
  if (waiting_.size() >= kMaxWaiting) return;
  waiting_.push_back({read.offset, std::vector<std::byte>(read.into, read.into + read.bytes)});
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  changed_.NotifyAll();
}

void RecordWriter::Run() {
  while (true) {
    Record record;
    {
      base::MutexLock lock(&mutex_);
      while (!stop_ && waiting_.empty()) changed_.Wait(&mutex_);
      if (stop_) return;
      record = std::move(waiting_.front());
      waiting_.pop_front();
    }
    const absl::Status written = WriteNow(record);
    if (!written.ok() && failures_++ == 0 && failed_) failed_(written);
  }
}

absl::Status RecordWriter::WriteNow(const Record& record) const {
  const int file = open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  if (file < 0) return Error(path_, errno);
  const auto write_all = [&]() -> absl::Status {
    struct stat found;
    if (fstat(file, &found) != 0) return Error(path_, errno);
    if (found.st_dev != device_ || found.st_ino != inode_) {
      return absl::FailedPreconditionError(absl::StrCat(path_, ": the file was replaced"));
    }
    size_t done = 0;
    while (done < record.bytes.size()) {
      const ssize_t put = pwrite(file, record.bytes.data() + done, record.bytes.size() - done,
                                 static_cast<off_t>(record.offset + done));
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return Error(path_, errno);
      done += put;
    }
    return fdatasync(file) == 0 ? absl::OkStatus() : Error(path_, errno);
  };
  const absl::Status written = write_all();
  close(file);
  return written;
}

}  // namespace tidepool::moe
