// StoreFile: the files of a SQLite store as the file system has them: whether they are still there
// under their names, and some room kept for a full disk.
#ifndef TIDEPOOL_SERVICE_STORE_STORE_FILE_H_
#define TIDEPOOL_SERVICE_STORE_STORE_FILE_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "service/store/sqlite_db.h"

namespace tidepool::service {

// Thread-compatible. SQLite holds locks that go when any descriptor of the file is closed, so this
// opens none of them.
class StoreFile {
 public:
  // Reserved beside the store, because deletions need space for their log before they free any.
  static constexpr int64_t kReserveBytes = 1 << 20;

  // The file of an open store. ":memory:" has no file, and all calls succeed.
  explicit StoreFile(std::string path);

  const std::string& path() const { return path_; }
  // UNAVAILABLE, with the name of the file: the store or its log was deleted, renamed or replaced,
  // until it is back; or it was truncated or overwritten, permanently. Looks only at names and
  // sizes, so it is cheap enough to run before each write. log_bytes: the minimum size of the
  // write-ahead log.
  absl::Status CheckSizes(int64_t log_bytes);
  // The same, and also reads the files that `db` has open.
  absl::Status Check(const SqliteDb& db);
  // Called after the store has written to its file from its log.
  void Written(const SqliteDb& db);

  // The log's file does not hold what SQLite wrote there.
  bool log_is_damaged() const { return log_is_damaged_; }

  // Reserves space in STORE-reserve, if there is any.
  void Reserve();
  // Gives it to whoever writes next. False: there was none.
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
  std::optional<Identity> log_;  // seen first with the first write
  std::optional<off_t> size_;
  std::optional<std::string> start_;
  std::string log_start_;  // empty: not seen since the log began again
  absl::Status damaged_;   // by others; there is no way back
  bool log_is_damaged_ = false;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_STORE_FILE_H_
