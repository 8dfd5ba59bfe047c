// The parts that both RecordReaders share: the open file and the queue of waiting reads.
// Implementation detail of the readers.
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

// Owns a file descriptor. Move-only.
class RecordFile {
 public:
  // Opens a file. Reads bypass the page cache if the file system supports this. Otherwise they are
  // buffered.
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

// Thread-compatible. The reader that owns it must lock.
class WaitingReads {
 public:
  bool empty() const { return demand_.empty() && speculative_.empty(); }
  void Push(const RecordRead& read, ReadPriority priority) {
    (priority == ReadPriority::kDemand ? demand_ : speculative_).push_back(read);
  }
  // Returns the next read and removes it. Requires: not empty.
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

// A short read began at `begin` and returned `got` bytes. Returns where to continue it, which is
// the start of a block, because direct reads must be aligned. Returns `begin` if the first block is
// not complete. Both positions are relative to the record's start. Requires: got >= 0, and `begin`
// is a multiple of kRecordAlignment.
int64_t NextBlock(int64_t begin, int64_t got);

// FailedRead returns the status of a read that failed with `error` (an errno value). ShortRead
// returns the status of a read if the file ends before the record does.
absl::Status FailedRead(int error);
absl::Status ShortRead();

std::unique_ptr<RecordReader> MakeThreadReader(RecordFile file, int64_t in_flight_bytes);
// If the kernel or the container does not allow io_uring, closes `file` and returns
// FAILED_PRECONDITION.
absl::StatusOr<std::unique_ptr<RecordReader>> MakeUringReader(RecordFile file,
                                                              const ReaderOptions& options);

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_RECORD_FILE_H_
