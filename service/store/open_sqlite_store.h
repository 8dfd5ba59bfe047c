// Opens a SQLite store: upgrades its schema, looks for damage, and ends turns that a crash has
// interrupted.
#ifndef TIDEPOOL_SERVICE_STORE_OPEN_SQLITE_STORE_H_
#define TIDEPOOL_SERVICE_STORE_OPEN_SQLITE_STORE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "service/store/sqlite_db.h"
#include "service/store/sqlite_sessions.h"
#include "service/store/store_ledger.h"
#include "service/store/store_witness.h"

namespace tidepool::service {

// The members are destroyed in reverse order, because the later ones use the earlier ones.
struct OpenedStore {
  SqliteDb db;
  std::unique_ptr<StoreLedger> ledger;
  std::unique_ptr<SqliteSessions> sessions;
  // The faults that were found, one line each. Losses that were found at earlier starts are
  // included.
  std::vector<std::string> faults;
  // The part of `faults` that is not recorded in the file.
  std::vector<std::string> passing_faults;
};

struct OpenStoreOptions {
  std::string path;
  bool existed = false;  // the file existed before the connection was opened
  int64_t max_sessions = 0;
  bool salvage = false;  // do not write or repair anything, and do not use the indexes
  absl::Time now;
};

// Requires: `db` is configured and locked. FAILED_PRECONDITION if the file belongs to another
// program or to a newer version. DATA_LOSS if nothing in it can be read. If only single sessions
// are damaged, or transactions were lost, the result is OK and contains the faults.
absl::StatusOr<OpenedStore> OpenTables(SqliteDb db, const StoreWitness& witness,
                                       const OpenStoreOptions& options);

// Returns all faults of the store, one line each. Faults inside the rows and logs of single
// sessions are not included.
absl::StatusOr<std::vector<std::string>> VerifyStore(const OpenedStore& store);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_OPEN_SQLITE_STORE_H_
