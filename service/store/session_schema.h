// The layout of the session store's SQLite file, and the way to it from every older one.
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

// The layout that this code writes; PRAGMA user_version of the file.
inline constexpr int64_t kSessionSchemaVersion = 4;

// Makes the tables in a new file, and brings those of an older version up to date in one
// transaction; `seal` is called in it when the tables are there, to hash what they hold.
// FAILED_PRECONDITION: the file is another program's, or of a newer version of this one.
absl::Status BringSchemaUpToDate(const SqliteDb& db, const std::function<absl::Status()>& seal);

// What SQLite finds broken, and rows that belong to no session: a line for each.
absl::StatusOr<std::vector<std::string>> FindFaults(const SqliteDb& db);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_SESSION_SCHEMA_H_
