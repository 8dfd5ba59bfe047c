// RecordReader: reads of records that go on while their caller computes.
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

// Offset, bytes and address are multiples of kRecordAlignment.
struct RecordRead {
  int64_t ticket = 0;  // the caller's own
  int64_t offset = 0;
  int64_t bytes = 0;
  std::byte* into = nullptr;
  uint64_t hash = 0;  // the caller's own: what the bytes should have
};

enum class ReadPriority : uint8_t { kDemand, kSpeculative };

// Thread-safe. Reads that wait begin in the order in which they were asked for, those on demand
// before all speculative ones.
class RecordReader {
 public:
  // Called once for each read, on a thread of the reader's. UNAVAILABLE: the read failed and may
  // succeed another time; DATA_LOSS: the file ends before the record does, wherever that is.
  using Done = std::function<void(const RecordRead& read, const absl::Status& status)>;

  // Forgets reads that have not begun and waits for the others.
  virtual ~RecordReader() = default;

  // Once, before the first Read.
  virtual void Start(Done done) = 0;
  // Returns at once.
  virtual void Read(const RecordRead& read, ReadPriority priority) = 0;
  // Takes back the speculative reads that have not begun. Done is not called for them.
  virtual std::vector<RecordRead> Withdraw() = 0;
  // For people: "io_uring" or "threads", and "buffered" where the page cache cannot be passed by.
  virtual std::string Description() const = 0;
};

enum class ReaderKind : uint8_t {
  kAuto,     // io_uring, or threads where the kernel or the container refuses it
  kUring,    // FAILED_PRECONDITION where it is refused
  kThreads,  // blocking reads on threads of its own
};

struct ReaderOptions {
  ReaderKind kind = ReaderKind::kAuto;
  // Another read begins while fewer bytes than these are with the kernel: two records of 2.5 MiB.
  // More does not make a disk faster, which splits such reads itself, and has its price: what is
  // asked for next waits behind all of it, and disks of virtual machines tell of no read's end
  // while others wait. At least 1.
  int64_t in_flight_bytes = int64_t{5} << 20;
  // Called with a line for people, on a thread of the reader's: io_uring stopped taking reads, and
  // a thread of the reader's does them. May be empty.
  std::function<void(absl::string_view line)> note;
};

// Reads `path` past the page cache where the file system can, which a first read finds out. Errors:
// NOT_FOUND, PERMISSION_DENIED and others with the file's name.
absl::StatusOr<std::unique_ptr<RecordReader>> OpenRecordReader(const std::string& path,
                                                               const ReaderOptions& options);

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_RECORD_READER_H_
