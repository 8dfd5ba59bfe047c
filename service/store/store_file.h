// StoreFile: checks that the files of a SQLite store still exist under their names. It also
// reserves disk space, which is used when the disk is full.
#ifndef TIDEPOOL_SERVICE_STORE_STORE_FILE_H_
#define TIDEPOOL_SERVICE_STORE_STORE_FILE_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "service/store/sqlite_db.h"

namespace tidepool::service {

// Thread-compatible. This class opens none of SQLite's files, because closing any descriptor of a
// file would release SQLite's locks on it.
class StoreFile {
 public:
  // Size of the reserve, a file beside the store. The reserve is needed because a deletion must
  // write to the log before it frees space.
  static constexpr int64_t kReserveBytes = 1 << 20;

  // `path` is the file of an open store, or ":memory:". A store in memory has no file, so all calls
  // succeed for it.
  explicit StoreFile(std::string path);

  const std::string& path() const { return path_; }
  // Compares only names and sizes, so it is fast enough to run before each write. `log_bytes` is
  // the minimum size of the write-ahead log. The error UNAVAILABLE names the file. If the file was
  // deleted, renamed or replaced, the result is OK again when the file is back. If the file was
  // truncated or overwritten, every later call returns the error.
  absl::Status CheckSizes(int64_t log_bytes);
  // Does the same as CheckSizes, and also compares the contents of the files that `db` has open.
  absl::Status Check(const SqliteDb& db);
  // Remembers the new content of the file. Call it after each checkpoint.
  void Written(const SqliteDb& db);

  // Returns true if the content of the log's file differs from what SQLite has written there.
  bool log_is_damaged() const { return log_is_damaged_; }

  // Reserves space in the file STORE-reserve, if the disk has space.
  void Reserve();
  // Frees the reserved space for the next write. Returns false if no space was reserved.
  bool ReleaseReserve();

 private:
  struct Identity {
    dev_t device = 0;
    ino_t inode = 0;
    friend bool operator==(const Identity&, const Identity&) = default;
  };
  static std::optional<Identity> Of(const std::string& path, off_t* size);
  std::string log() const { return path_ + "-wal"; }
  void DamageLog();

  const std::string path_;
  const bool in_memory_;
  const std::optional<Identity> store_;
  std::optional<Identity> log_;  // set by the first check that finds the log
  std::optional<off_t> size_;
  std::optional<std::string> start_;
  std::string log_start_;  // empty: not read since the log was started again
  absl::Status damaged_;   // an error if another program has overwritten a file; never reset
  bool log_is_damaged_ = false;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_STORE_FILE_H_
