// StoreFile: checks that the files of a SQLite store still exist under their names, and reserves
// space for a full disk.
#ifndef TIDEPOOL_SERVICE_STORE_STORE_FILE_H_
#define TIDEPOOL_SERVICE_STORE_STORE_FILE_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "service/store/sqlite_db.h"

namespace tidepool::service {

// Thread-compatible. Opens none of SQLite's files: closing any descriptor of a file would release
// SQLite's locks on it.
class StoreFile {
 public:
  // Reserved beside the store, because deletions need space for their log before they free any.
  static constexpr int64_t kReserveBytes = 1 << 20;

  // The file of an open store. ":memory:" has no file, and all calls succeed.
  explicit StoreFile(std::string path);

  const std::string& path() const { return path_; }
  // Compares only names and sizes, so it is cheap enough to run before each write. `log_bytes` is
  // the minimum size of the write-ahead log. UNAVAILABLE names the file. If the file was deleted,
  // renamed or replaced, the error lasts until it is back. If it was truncated or overwritten, the
  // error is permanent.
  absl::Status CheckSizes(int64_t log_bytes);
  // Same as CheckSizes, but also reads the files that `db` has open.
  absl::Status Check(const SqliteDb& db);
  // Call it after each checkpoint.
  void Written(const SqliteDb& db);

  // The log's file does not hold what SQLite wrote there.
  bool log_is_damaged() const { return log_is_damaged_; }

  // Reserves space in STORE-reserve, if there is any.
  void Reserve();
  // Frees the reserved space for the next write. False: no space was reserved.
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
  std::optional<Identity> log_;  // from the first check that finds the log
  std::optional<off_t> size_;
  std::optional<std::string> start_;
  std::string log_start_;  // empty: not read since the log was restarted
  absl::Status damaged_;   // not OK: another program overwrote a file; permanent
  bool log_is_damaged_ = false;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_STORE_FILE_H_
