// Opens the session store that --store names.
#ifndef TIDEPOOL_SERVICE_CLI_OPEN_STORE_H_
#define TIDEPOOL_SERVICE_CLI_OPEN_STORE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "service/base/log_level.h"
#include "service/cli/config.h"
#include "service/store/session_store.h"
#include "service/store/sqlite_session_store.h"

namespace tidepool::service {

enum class MissingStore : uint8_t { kMake, kRefuse };

// Opens a file, or connects to a Redis server. If the file does not exist, it is created together
// with its directory (kMake), or refused with NOT_FOUND (kRefuse). `log` is called on any thread:
// damage is logged as an error, an unreachable server as a warning. NOT_FOUND also if the password
// file does not exist. INVALID_ARGUMENT if the directory cannot be created or --store-password-file
// does not apply. Other errors are those of the store's Open. `use` applies to files only.
absl::StatusOr<std::unique_ptr<SessionStore>> OpenStore(const Config& config, MissingStore missing,
                                                        const LogSink& log = {},
                                                        StoreUse use = StoreUse::kServe);

// If the server does not start, deletes the store file that this process has created. A file that
// existed before is kept. Thread-compatible.
class NewStoreFile {
 public:
  // Must be called before the store is opened.
  explicit NewStoreFile(const std::string& store);
  // Deletes the file unless it is kept. The store must be closed.
  ~NewStoreFile();
  NewStoreFile(const NewStoreFile&) = delete;
  NewStoreFile& operator=(const NewStoreFile&) = delete;

  void Keep() { path_.clear(); }

 private:
  std::string path_;          // empty: nothing to delete
  bool had_witness_ = false;  // true if STORE-commits existed before
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_OPEN_STORE_H_
