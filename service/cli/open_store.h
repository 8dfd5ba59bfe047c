// The session store that --store names.
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

// A file, made with its folder if it is missing, or a Redis server. `log` is called on any thread:
// damage that is found is an error there, a server that is away a warning. NOT_FOUND:
// there is no such file, with kRefuse, or none with the password; INVALID_ARGUMENT: its folder
// cannot be made, or --store-password-file does not fit; others as the stores' Open. `use` applies
// to files only.
absl::StatusOr<std::unique_ptr<SessionStore>> OpenStore(const Config& config, MissingStore missing,
                                                        const LogSink& log = {},
                                                        StoreUse use = StoreUse::kServe);

// Takes back the store's file when the server that it was made for does not start. One that was
// there before stays. Thread-compatible.
class NewStoreFile {
 public:
  // Before the store is opened.
  explicit NewStoreFile(const std::string& store);
  // After the store was closed, unless it is kept.
  ~NewStoreFile();
  NewStoreFile(const NewStoreFile&) = delete;
  NewStoreFile& operator=(const NewStoreFile&) = delete;

  void Keep() { path_.clear(); }

 private:
  std::string path_;          // empty: nothing to take back
  bool had_witness_ = false;  // STORE-commits is of a store that was there before
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_OPEN_STORE_H_
