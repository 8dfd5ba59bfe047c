// AtomicFile: a file that appears under its name when it is complete and on the disk, and not at
// all otherwise.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<AtomicFile> file,
//                    AtomicFile::Create("out.gguf", {.existing = ExistingFile::kReplace}));
//   RETURN_IF_ERROR(file->Append(data, bytes));
//   RETURN_IF_ERROR(file->Finish());
#ifndef TIDEPOOL_KERNELS_BASE_ATOMIC_FILE_H_
#define TIDEPOOL_KERNELS_BASE_ATOMIC_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tidepool::base {

// What happens to a file that is there already.
enum class ExistingFile : uint8_t { kRefuse, kReplace };

enum class PageCache : uint8_t {
  kUse,
  // Past it where the file system can: all that is written then begins and ends at multiples of
  // 4,096 bytes, in memory too.
  kBypass,
};

enum class UnfinishedFile : uint8_t {
  // Without a name where the file system can, so that not even a kill leaves a part of it.
  kUnnamed,
  // Beside the path, with a random part in its name, and locked (flock). What other file systems
  // get anyway.
  kNamed,
};

struct AtomicFileOptions {
  ExistingFile existing = ExistingFile::kRefuse;
  // How large it will be, taken at once where the file system can: a disk that is too full says so
  // now and not after an hour. 0: not known.
  int64_t bytes = 0;
  PageCache cache = PageCache::kUse;
  UnfinishedFile unfinished = UnfinishedFile::kUnnamed;
  unsigned mode = 0666;  // less the umask
};

// Thread-compatible. Destroyed before Finish, it leaves nothing behind. What a kill leaves of a
// file with a name is removed by the next Create of the same path.
class AtomicFile {
 public:
  // Errors, of all functions, name the path, and the unfinished file if that has a name:
  // ALREADY_EXISTS, RESOURCE_EXHAUSTED (the disk is full; with the bytes needed if they are known),
  // INVALID_ARGUMENT (a folder or a device in the way), NOT_FOUND, PERMISSION_DENIED and what else
  // the system gives.
  static absl::StatusOr<std::unique_ptr<AtomicFile>> Create(const std::string& path,
                                                            const AtomicFileOptions& options);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Behind what was appended before.
  absl::Status Append(const void* data, int64_t bytes);
  absl::Status WriteAt(const void* data, int64_t bytes, int64_t offset);

  // Nothing may be called afterwards. ALREADY_EXISTS: under kRefuse, what came to the path
  // meanwhile.
  absl::Status Finish();

  // Of all that was appended, in bytes.
  int64_t position() const { return position_; }

 private:
  AtomicFile(std::string path, const AtomicFileOptions& options);

  absl::Status Open();
  absl::Status OpenNamed();
  // Gives the unfinished file a name of its own that is not `path_`.
  absl::Status Name();
  absl::Status Place();
  absl::Status Error(int error) const;

  const std::string path_;
  const AtomicFileOptions options_;
  int64_t position_ = 0;
  int file_ = -1;
  std::string partial_path_;  // the unfinished file's; empty: it has none
};

}  // namespace tidepool::base

#endif  // TIDEPOOL_KERNELS_BASE_ATOMIC_FILE_H_
