// KvDiskFile: the file of a KvDisk. It is an interface, so that tests can replace it.
#ifndef TIDEPOOL_ENGINE_KV_KV_DISK_FILE_H_
#define TIDEPOOL_ENGINE_KV_KV_DISK_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tidepool::engine {

// Thread-compatible.
class KvDiskFile {
 public:
  virtual ~KvDiskFile() = default;

  // Opens the file. If it does not exist, creates the file and its directory, readable only by the
  // owner. Another process cannot open the file at the same time. Returns FAILED_PRECONDITION if
  // another process uses the file, and INVALID_ARGUMENT if it cannot be created or is not a regular
  // file. Errors name the path and --cache-dir.
  static absl::StatusOr<std::unique_ptr<KvDiskFile>> Open(const std::string& path);

  // ReadSmall and WriteSmall are for small pieces, and use the page cache. A read that goes past
  // the end of the file returns fewer bytes. Errors are those of the system.
  virtual absl::StatusOr<std::string> ReadSmall(int64_t offset, int64_t bytes) = 0;
  virtual absl::Status WriteSmall(int64_t offset, absl::string_view bytes) = 0;
  // Read and Write are for whole slots. They bypass the page cache if possible, because memory is
  // scarce. Requires: offset, size and address are multiples of kKvDiskPage. Read returns DATA_LOSS
  // if the file is too short.
  virtual absl::Status Read(int64_t offset, absl::Span<std::byte> into) = 0;
  virtual absl::Status Write(int64_t offset, absl::Span<const std::byte> bytes) = 0;
  // Deletes the contents of the file.
  virtual absl::Status Clear() = 0;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_KV_KV_DISK_FILE_H_
