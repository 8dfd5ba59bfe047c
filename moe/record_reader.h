// RecordReader: reads records in the background while the caller computes.
//
//   ASSIGN_OR_RETURN(auto reader, OpenRecordReader(path, {}));
//   reader->Start([&](const RecordRead& read, const absl::Status& status) { ... });
//   reader->Read({.ticket = 7, .offset = 8192, .bytes = 4096, .into = buffer},
//               ReadPriority::kDemand);
#ifndef TIDEPOOL_MOE_RECORD_READER_H_
#define TIDEPOOL_MOE_RECORD_READER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tidepool::moe {

// One read. Offset, size and address must be multiples of kRecordAlignment.
struct RecordRead {
  int64_t ticket = 0;  // chosen by the caller
  int64_t offset = 0;
  int64_t bytes = 0;
  std::byte* into = nullptr;
  uint64_t hash = 0;  // the expected hash; the reader does not compare it
};

enum class ReadPriority : uint8_t { kDemand, kSpeculative };

// Thread-safe. Reads begin in the order of the calls, except that demand reads begin before all
// speculative reads.
class RecordReader {
 public:
  // Called once for each read, on a thread of the reader. The status is UNAVAILABLE if the read
  // failed and may succeed later, and DATA_LOSS if the file ends before the record does.
  using Done = std::function<void(const RecordRead& read, const absl::Status& status)>;

  // Cancels the reads that have not begun, and waits for all others.
  virtual ~RecordReader() = default;

  // Must be called once, before the first Read.
  virtual void Start(Done done) = 0;
  // Queues a read and returns at once.
  virtual void Read(const RecordRead& read, ReadPriority priority) = 0;
  // Cancels the speculative reads that have not begun, and returns them. Done is not called for
  // them.
  virtual std::vector<RecordRead> Withdraw() = 0;
  // Describes the reader for people: "io_uring" or "threads", and "buffered" if reads use the page
  // cache.
  virtual std::string Description() const = 0;
};

enum class ReaderKind : uint8_t {
  kAuto,     // io_uring; threads if the kernel or the container does not allow io_uring
  kUring,    // io_uring; FAILED_PRECONDITION if it is not allowed
  kThreads,  // several threads with blocking reads
};

struct ReaderOptions {
  ReaderKind kind = ReaderKind::kAuto;
  // A read begins only while fewer bytes than this are in flight. The default is two records of 2.5
  // MiB. A larger value does not make a disk faster, because the disk splits such large reads
  // itself. But later reads wait longer, and the disks of some virtual machines complete no read
  // while other reads are queued. Must be at least 1.
  int64_t in_flight_bytes = int64_t{5} << 20;
  // Called on a thread of the reader when io_uring accepts no more reads and the reader
  // continues with blocking reads. The line is a message for people. May be empty.
  std::function<void(absl::string_view line)> note;
};

// Opens `path`. Reads bypass the page cache if a test read shows that this works. NOT_FOUND,
// PERMISSION_DENIED and other errors name the file.
absl::StatusOr<std::unique_ptr<RecordReader>> OpenRecordReader(const std::string& path,
                                                               const ReaderOptions& options);

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_RECORD_READER_H_
