// What happens when a SQLite store is opened: its layout is brought up to date, damage is looked
// for, and turns that a crash cut short are ended.
#ifndef TIDEPOOL_SERVICE_STORE_OPEN_SQLITE_STORE_H_
#define TIDEPOOL_SERVICE_STORE_OPEN_SQLITE_STORE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "service/store/session_tables.h"
#include "service/store/sqlite_db.h"
#include "service/store/store_ledger.h"
#include "service/store/store_witness.h"

namespace tidepool::service {

// The members are destroyed from the last to the first.
struct OpenedStore {
  SqliteDb db;
  std::unique_ptr<StoreLedger> ledger;
  std::unique_ptr<SessionTables> tables;
  // What was found, a line for each: losses of earlier starts too.
  std::vector<std::string> faults;
  // Of them, what nothing in the file remembers.
  std::vector<std::string> passing_faults;
};

struct OpenStoreOptions {
  std::string path;
  bool existed = false;  // there was a file, before the connection was opened
  int64_t max_sessions = 0;
  absl::Time now;
};

// `db` is configured and locked. FAILED_PRECONDITION: it is another program's, or a newer
// version's; DATA_LOSS: nothing can be read of it. Damage to single sessions, and transactions that
// were lost, are faults, not errors.
absl::StatusOr<OpenedStore> OpenTables(SqliteDb db, const StoreWitness& witness,
                                       const OpenStoreOptions& options);

// All that is wrong with the store but for single sessions' rows and logs, a line for each.
absl::StatusOr<std::vector<std::string>> VerifyStore(const OpenedStore& store);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_OPEN_SQLITE_STORE_H_
