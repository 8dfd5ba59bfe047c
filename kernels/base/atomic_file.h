// AtomicFile: writes a file that gets its final name only when it is complete and on the disk.
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

// What to do if a file with the final name exists.
enum class ExistingFile : uint8_t { kRefuse, kReplace };

enum class PageCache : uint8_t {
  kUse,
  // Bypass the page cache if the file system supports this. All writes must then have sizes and
  // addresses that are multiples of 4,096 bytes.
  kBypass,
};

enum class UnfinishedFile : uint8_t {
  // The unfinished file has no name, if the file system supports this. So even a killed process
  // leaves no partial file.
  kUnnamed,
  // The unfinished file is in the same directory. It has a random part in its name, and is locked
  // (flock). File systems that do not support kUnnamed use this.
  kNamed,
};

struct AtomicFileOptions {
  ExistingFile existing = ExistingFile::kRefuse;
  // The final size; 0: unknown. If the file system supports this, the space is allocated at the
  // start, so that a full disk is an error now and not an hour later.
  int64_t bytes = 0;
  PageCache cache = PageCache::kUse;
  UnfinishedFile unfinished = UnfinishedFile::kUnnamed;
  unsigned mode = 0666;  // permissions of the file, reduced by the umask
};

// Thread-compatible. If it is destroyed before Finish, no file remains. If a killed process left an
// unfinished file, the next Create of the same path removes that file.
class AtomicFile {
 public:
  // Opens the unfinished file. The errors of all functions name the path, and the unfinished file
  // if it has a name: ALREADY_EXISTS; RESOURCE_EXHAUSTED if the disk is full, with the required
  // bytes if they are known; INVALID_ARGUMENT if the path is a directory or a device; NOT_FOUND,
  // PERMISSION_DENIED and others of the system.
  static absl::StatusOr<std::unique_ptr<AtomicFile>> Create(const std::string& path,
                                                            const AtomicFileOptions& options);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Writes `data` after everything that was appended before.
  absl::Status Append(const void* data, int64_t bytes);
  absl::Status WriteAt(const void* data, int64_t bytes, int64_t offset);

  // Gives the file its final name. No other function may be called afterwards. Returns
  // ALREADY_EXISTS if kRefuse is set and another file was created at the path in the meantime.
  absl::Status Finish();

  // Number of bytes that were appended.
  int64_t position() const { return position_; }

 private:
  AtomicFile(std::string path, const AtomicFileOptions& options);

  absl::Status Open();
  absl::Status OpenNamed();
  // Gives the unfinished file a temporary name, which is not `path_`.
  absl::Status Name();
  absl::Status Place();
  absl::Status Error(int error) const;

  const std::string path_;
  const AtomicFileOptions options_;
  int64_t position_ = 0;
  int file_ = -1;
  std::string partial_path_;  // name of the unfinished file; empty if it has no name
};

}  // namespace tidepool::base

#endif  // TIDEPOOL_KERNELS_BASE_ATOMIC_FILE_H_
