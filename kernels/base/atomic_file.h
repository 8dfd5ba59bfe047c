// AtomicFile: a file that appears under its name only when it is complete and on the disk.
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

// What to do if the file exists.
enum class ExistingFile : uint8_t { kRefuse, kReplace };

enum class PageCache : uint8_t {
  kUse,
  // Bypass the page cache if the file system supports this. Then all writes must have sizes and
  // addresses that are multiples of 4,096 bytes.
  kBypass,
};

enum class UnfinishedFile : uint8_t {
  // The unfinished file has no name if the file system supports this, so that not even a kill
  // leaves a partial file.
  kUnnamed,
  // The unfinished file is next to the path, with a random part in its name, and locked (flock).
  // Other file systems always use this.
  kNamed,
};

struct AtomicFileOptions {
  ExistingFile existing = ExistingFile::kRefuse;
  // The final size, which is allocated at once if the file system supports this: then a full disk
  // fails now instead of an hour later. 0: unknown.
  int64_t bytes = 0;
  PageCache cache = PageCache::kUse;
  UnfinishedFile unfinished = UnfinishedFile::kUnnamed;
  unsigned mode = 0666;  // reduced by the umask
};

// Thread-compatible. If it is destroyed before Finish, it leaves no file. If a killed process left
// an unfinished file, the next Create of the same path removes it.
class AtomicFile {
 public:
  // Errors of all functions name the path, and the unfinished file if it has a name:
  // ALREADY_EXISTS, RESOURCE_EXHAUSTED (the disk is full; with the required bytes if known),
  // INVALID_ARGUMENT (the path is a directory or a device), NOT_FOUND, PERMISSION_DENIED and others
  // of the system.
  static absl::StatusOr<std::unique_ptr<AtomicFile>> Create(const std::string& path,
                                                            const AtomicFileOptions& options);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Appends to what was appended before.
  absl::Status Append(const void* data, int64_t bytes);
  absl::Status WriteAt(const void* data, int64_t bytes, int64_t offset);

  // Do not call anything afterwards. ALREADY_EXISTS if kRefuse is set and a file was created at the
  // path meanwhile.
  absl::Status Finish();

  // Number of bytes appended.
  int64_t position() const { return position_; }

 private:
  AtomicFile(std::string path, const AtomicFileOptions& options);

  absl::Status Open();
  absl::Status OpenNamed();
  // Gives the unfinished file a temporary name, different from `path_`.
  absl::Status Name();
  absl::Status Place();
  absl::Status Error(int error) const;

  const std::string path_;
  const AtomicFileOptions options_;
  int64_t position_ = 0;
  int file_ = -1;
  std::string partial_path_;  // name of the unfinished file; empty: it has none
};

}  // namespace tidepool::base

#endif  // TIDEPOOL_KERNELS_BASE_ATOMIC_FILE_H_
