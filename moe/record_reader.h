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

// Offset, size and address are multiples of kRecordAlignment.
struct RecordRead {
  int64_t ticket = 0;  // chosen by the caller
  int64_t offset = 0;
  int64_t bytes = 0;
  std::byte* into = nullptr;
  uint64_t hash = 0;  // the expected hash; the reader does not check it
};

enum class ReadPriority : uint8_t { kDemand, kSpeculative };

// Thread-safe. Waiting reads begin in the order of the calls, but demand reads begin before all
// speculative ones.
class RecordReader {
 public:
  // Called once for each read, on a thread of the reader. UNAVAILABLE if the read failed and may
  // succeed later, DATA_LOSS if the file ends before the record does.
  using Done = std::function<void(const RecordRead& read, const absl::Status& status)>;

  // Drops reads that have not begun and waits for the others.
  virtual ~RecordReader() = default;

  // Call it once, before the first Read.
  virtual void Start(Done done) = 0;
  // Returns at once.
  virtual void Read(const RecordRead& read, ReadPriority priority) = 0;
  // Cancels the speculative reads that have not begun, and returns them. Done is not called for
  // them.
  virtual std::vector<RecordRead> Withdraw() = 0;
  // "io_uring" or "threads" for people, with "buffered" if reads use the page cache.
  virtual std::string Description() const = 0;
};

enum class ReaderKind : uint8_t {
  kAuto,     // io_uring, or threads if the kernel or the container refuses it
  kUring,    // FAILED_PRECONDITION if it is refused
  kThreads,  // blocking reads on several threads
};

struct ReaderOptions {
  ReaderKind kind = ReaderKind::kAuto;
  // A new read begins while less than this number of bytes is in flight. The default is two records
  // of 2.5 MiB. A larger value does not make a disk faster, since it splits such reads itself. But
  // then later reads wait longer, and the disks of some virtual machines report no read as complete
  // while others wait. At least 1.
  int64_t in_flight_bytes = int64_t{5} << 20;
  // Called on a thread of the reader with a line for people when io_uring no longer accepts reads,
  // and blocking reads replace it. May be empty.
  std::function<void(absl::string_view line)> note;
};

// Opens `path` and bypasses the page cache if possible, which a test read checks. NOT_FOUND,
// PERMISSION_DENIED and other errors name the file.
absl::StatusOr<std::unique_ptr<RecordReader>> OpenRecordReader(const std::string& path,
                                                               const ReaderOptions& options);

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_RECORD_READER_H_
