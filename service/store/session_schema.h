// The schema of the SQLite file of a session store, and the upgrades from older versions.
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

// The version that this code writes. It is stored as PRAGMA user_version.
inline constexpr int64_t kSessionSchemaVersion = 4;

// Creates the tables in a new file, or upgrades the tables of an older version. Then calls `seal`,
// to hash the rows. All of this is one transaction. FAILED_PRECONDITION if the file belongs to
// another program, or to a newer version of this program.
absl::Status BringSchemaUpToDate(const SqliteDb& db, const std::function<absl::Status()>& seal);

// Returns one line for each fault that SQLite finds, and for rows that belong to no session.
absl::StatusOr<std::vector<std::string>> FindFaults(const SqliteDb& db);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_SESSION_SCHEMA_H_
