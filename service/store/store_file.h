// StoreFile: the files of a SQLite store as the file system has them: whether they are still there
// under their names, and some room kept for a full disk.
#ifndef TIDEPOOL_SERVICE_STORE_STORE_FILE_H_
#define TIDEPOOL_SERVICE_STORE_STORE_FILE_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"

namespace tidepool::service {

// Thread-compatible. SQLite holds locks that go when any descriptor of the file is closed, so this
// opens none of them.
class StoreFile {
 public:
  // Kept beside the store: deletions need room for their log before they free any.
  static constexpr int64_t kReserveBytes = 1 << 20;

  // Of a store that is open. ":memory:" has no file: then everything here succeeds.
  explicit StoreFile(std::string path);

  const std::string& path() const { return path_; }
  // UNAVAILABLE: the store or its write-ahead log was deleted, renamed or replaced. Names the file.
  absl::Status Check();

  // Keeps room, if there is any, in STORE-reserve.
  void Reserve();
  // Gives it to whoever writes next. False: there was none.
  bool ReleaseReserve();

 private:
  struct Identity {
    dev_t device = 0;
    ino_t inode = 0;
    friend bool operator==(const Identity&, const Identity&) = default;
  };
  static std::optional<Identity> Of(const std::string& path);

  const std::string path_;
  const bool in_memory_;
  const std::optional<Identity> store_;
  std::optional<Identity> log_;  // seen first with the first write
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_STORE_FILE_H_
