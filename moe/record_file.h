// What both RecordReaders share: the open file and the reads that wait. Implementation detail of
// theirs.
#ifndef TIDEPOOL_MOE_RECORD_FILE_H_
#define TIDEPOOL_MOE_RECORD_FILE_H_

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "moe/record_reader.h"

namespace tidepool::moe {

// Move-only owner of a file descriptor.
class RecordFile {
 public:
  // Past the page cache where the file system opens the file so and then reads it, too.
  static absl::StatusOr<RecordFile> Open(const std::string& path);

  RecordFile(RecordFile&& other) noexcept
      : file_(std::exchange(other.file_, -1)), direct_(other.direct_) {}
  RecordFile& operator=(RecordFile&&) = delete;
  ~RecordFile();

  int file() const { return file_; }
  bool direct() const { return direct_; }

 private:
  RecordFile(int file, bool direct) : file_(file), direct_(direct) {}

  int file_ = -1;
  bool direct_ = false;
};

// Thread-compatible: its reader locks.
class WaitingReads {
 public:
  bool empty() const { return demand_.empty() && speculative_.empty(); }
  void Push(const RecordRead& read, ReadPriority priority) {
    (priority == ReadPriority::kDemand ? demand_ : speculative_).push_back(read);
  }
  // Requires: not empty.
  RecordRead Pop() {
    std::deque<RecordRead>& reads = demand_.empty() ? speculative_ : demand_;
    const RecordRead read = reads.front();
    reads.pop_front();
    return read;
  }
  std::vector<RecordRead> Withdraw() {
    const std::vector<RecordRead> reads(speculative_.begin(), speculative_.end());
    speculative_.clear();
    return reads;
  }

 private:
  std::deque<RecordRead> demand_;
  std::deque<RecordRead> speculative_;
};

// Where a read goes on that began at `begin` and gave `got` bytes, fewer than it asked for: at a
// whole block, for the kernel takes nothing else past the page cache. `begin` itself: the file ends
// there, or inside that block. Both count from the record's start. Requires: got >= 0 and `begin`
// is a multiple of kRecordAlignment.
int64_t NextBlock(int64_t begin, int64_t got);

// What a read that returned -error means, and that of a record which the file ends in or before.
absl::Status FailedRead(int error);
absl::Status ShortRead();

std::unique_ptr<RecordReader> MakeThreadReader(RecordFile file, int64_t in_flight_bytes);
// FAILED_PRECONDITION where the kernel or the container has no io_uring; `file` is then gone.
absl::StatusOr<std::unique_ptr<RecordReader>> MakeUringReader(RecordFile file,
                                                              const ReaderOptions& options);

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_RECORD_FILE_H_
