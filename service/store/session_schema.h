// The schema of the session store's SQLite file, and the upgrade from each older version.
#ifndef TIDEPOOL_SERVICE_STORE_SESSION_SCHEMA_H_
#define TIDEPOOL_SERVICE_STORE_SESSION_SCHEMA_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "service/store/sqlite_db.h"

namespace tidepool::service {

// The version that this code writes, as PRAGMA user_version of the file.
inline constexpr int64_t kSessionSchemaVersion = 4;

// Creates the tables in a new file, or upgrades those of an older version, in one transaction. Then
// calls `seal` in the same transaction, to hash the rows. FAILED_PRECONDITION: the file belongs to
// another program or to a newer version of this one.
absl::Status BringSchemaUpToDate(const SqliteDb& db, const std::function<absl::Status()>& seal);

// A line for each fault that SQLite finds, and for rows that belong to no session.
absl::StatusOr<std::vector<std::string>> FindFaults(const SqliteDb& db);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_SESSION_SCHEMA_H_
