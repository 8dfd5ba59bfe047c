#include "moe/record_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "moe/expert_record.h"

namespace tidepool::moe {
namespace {

// Returns whether direct reads work. On some file systems, mostly FUSE, a file can be opened for
// direct reads, but each read fails.
bool ReadsDirectly(int file) {
  alignas(kRecordAlignment) std::byte block[kRecordAlignment];
  return pread(file, block, sizeof(block), 0) >= 0 || errno != EINVAL;
}

}  // namespace

absl::StatusOr<RecordFile> RecordFile::Open(const std::string& path) {
  int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
  if (file >= 0) {
    if (ReadsDirectly(file)) return RecordFile(file, /*direct=*/true);
    close(file);
    errno = EINVAL;
  }
  if (errno == EINVAL) file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    const int error = errno;
    return absl::Status(absl::ErrnoToStatus(error, "").code(),
                        absl::StrCat("cannot open ", path, ": ", std::strerror(error)));
  }
  // Records are read as a whole, at random offsets.
  posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM);
  return RecordFile(file, /*direct=*/false);
}

RecordFile::~RecordFile() {
  if (file_ >= 0) close(file_);
}

absl::Status FailedRead(int error) {
  return absl::UnavailableError(absl::StrCat("cannot be read: ", std::strerror(error)));
}

absl::Status ShortRead() {
  return absl::DataLossError("is truncated: the file ends before its last byte");
}

int64_t NextBlock(int64_t begin, int64_t got) {
  return (begin + got) / kRecordAlignment * kRecordAlignment;
}

absl::StatusOr<std::unique_ptr<RecordReader>> OpenRecordReader(const std::string& path,
                                                               const ReaderOptions& options) {
  CHECK(options.in_flight_bytes > 0);
  ASSIGN_OR_RETURN(RecordFile file, RecordFile::Open(path));
  if (options.kind != ReaderKind::kThreads) {
    absl::StatusOr<std::unique_ptr<RecordReader>> uring = MakeUringReader(std::move(file), options);
    if (uring.ok() || options.kind == ReaderKind::kUring) return uring;
    ASSIGN_OR_RETURN(RecordFile again, RecordFile::Open(path));
    return MakeThreadReader(std::move(again), options.in_flight_bytes);
  }
  return MakeThreadReader(std::move(file), options.in_flight_bytes);
}

}  // namespace tidepool::moe
