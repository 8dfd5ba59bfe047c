// KvDiskFile: the open file of a KvDisk, as tests can stand in for it.
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

  // Opens or makes it, readable by its owner alone, with its folder. No other process can open it
  // as long as it is open here. FAILED_PRECONDITION (another one has it), INVALID_ARGUMENT (it
  // cannot be made, or is no regular file); names the path and --cache-dir.
  static absl::StatusOr<std::unique_ptr<KvDiskFile>> Open(const std::string& path);

  // Small pieces, through the page cache. A read past the end gives what there is. Errors: the
  // system's.
  virtual absl::StatusOr<std::string> ReadSmall(int64_t offset, int64_t bytes) = 0;
  virtual absl::Status WriteSmall(int64_t offset, absl::string_view bytes) = 0;
  // Whole slots, past the page cache where the file system can: memory is what is short. Requires:
  // offset, size and address are multiples of kKvDiskPage. DATA_LOSS: the file ends before.
  virtual absl::Status Read(int64_t offset, absl::Span<std::byte> into) = 0;
  virtual absl::Status Write(int64_t offset, absl::Span<const std::byte> bytes) = 0;
  // Forgets all that it holds.
  virtual absl::Status Clear() = 0;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_KV_KV_DISK_FILE_H_
