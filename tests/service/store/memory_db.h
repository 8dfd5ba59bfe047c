// A SQLite database in memory with the tables of a session store.
#ifndef TIDEPOOL_TESTS_SERVICE_STORE_MEMORY_DB_H_
#define TIDEPOOL_TESTS_SERVICE_STORE_MEMORY_DB_H_

#include <gtest/gtest.h>

#include "service/store/session_schema.h"
#include "service/store/sqlite_db.h"

namespace tidepool::service {

inline SqliteDb MakeMemoryDb() {
  SqliteDb db = SqliteDb::Open(":memory:").value();
  const absl::Status made = BringSchemaUpToDate(db, [] { return absl::OkStatus(); });
  EXPECT_TRUE(made.ok()) << made;
  return db;
}

}  // namespace tidepool::service

#endif  // TIDEPOOL_TESTS_SERVICE_STORE_MEMORY_DB_H_
