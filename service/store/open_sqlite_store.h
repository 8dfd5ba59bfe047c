// Opens a SQLite store: upgrades its schema, checks for damage, and ends turns that a crash
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

// The members are destroyed from the last to the first.
struct OpenedStore {
  SqliteDb db;
  std::unique_ptr<StoreLedger> ledger;
  std::unique_ptr<SqliteSessions> sessions;
  // The faults that were found, one line each, including losses of earlier starts.
  std::vector<std::string> faults;
  // The faults that are not recorded in the file.
  std::vector<std::string> passing_faults;
};

struct OpenStoreOptions {
  std::string path;
  bool existed = false;  // the file existed before the connection was opened
  int64_t max_sessions = 0;
  bool salvage = false;  // do not write or repair anything, and do not use the indexes
  absl::Time now;
};

// `db` is configured and locked. FAILED_PRECONDITION: it belongs to another program or a newer
// version; DATA_LOSS: nothing in it can be read. Damage to single sessions and lost transactions
// are faults, not errors.
absl::StatusOr<OpenedStore> OpenTables(SqliteDb db, const StoreWitness& witness,
                                       const OpenStoreOptions& options);

// All faults of the store, one line each, except those in rows and logs of single sessions.
absl::StatusOr<std::vector<std::string>> VerifyStore(const OpenedStore& store);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_OPEN_SQLITE_STORE_H_
