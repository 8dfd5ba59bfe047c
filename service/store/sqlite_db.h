// SqliteDb and SqliteStatement: RAII wrappers, with absl::Status, for the part of SQLite's C API
// that the store uses.
#ifndef TIDEPOOL_SERVICE_STORE_SQLITE_DB_H_
#define TIDEPOOL_SERVICE_STORE_SQLITE_DB_H_

#include <sqlite3.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tidepool::service {

// The page size of the store's file.
inline constexpr int64_t kPageBytes = 4096;

// A prepared statement. A text that was bound must outlive the run, because SQLite does not copy
// it. The connection must outlive the statement. Thread-compatible.
class SqliteStatement {
 public:
  SqliteStatement() = default;

  // The first parameter has the number 1.
  SqliteStatement& Bind(int parameter, int64_t value);
  SqliteStatement& Bind(int parameter, absl::string_view text);
  SqliteStatement& BindBlob(int parameter, absl::string_view bytes);

  // Returns true if there is a row. Returns false if there are no more rows. After false, values
  // may be bound again.
  absl::StatusOr<bool> Step();
  // Steps until the end and ignores the rows. Then values may be bound again.
  absl::Status Run();
  // Ends the run before its last row, so that values may be bound again.
  void Reset();

  // The first column has the number 0. The text is valid until the next step.
  int64_t Int(int column) const;
  absl::string_view Text(int column) const;
  // Returns whether the columns have these storage classes. `classes` has one letter for each
  // column: i(nteger), t(ext) or b(lob). A value of another class may have the same bytes, but a
  // query by this column does not find it.
  bool HasClasses(absl::string_view classes) const;

 private:
  friend class SqliteDb;
  friend class TolerateIndexDamage;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

// While this object exists, its connection can delete and update rows that are missing from an
// index. Without it, SQLite ends such a statement with SQLITE_CORRUPT_INDEX. When this object is
// created or destroyed, no statement of the connection may be in use.
class TolerateIndexDamage {
 public:
  // `statement` may be any statement of the connection.
  explicit TolerateIndexDamage(const SqliteStatement& statement);
  ~TolerateIndexDamage();
  TolerateIndexDamage(const TolerateIndexDamage&) = delete;
  TolerateIndexDamage& operator=(const TolerateIndexDamage&) = delete;

 private:
  sqlite3* const db_;
};

// A connection to a database. Thread-compatible.
class SqliteDb {
 public:
  // ":memory:" opens a private database that has no file. Errors are those of SqliteError.
  static absl::StatusOr<SqliteDb> Open(const std::string& path);

  absl::StatusOr<SqliteStatement> Prepare(absl::string_view sql) const;
  // Prepares several statements. Each is stored in its variable.
  absl::Status PrepareAll(
      std::initializer_list<std::pair<SqliteStatement*, absl::string_view>> statements) const;
  // Runs statements that have no parameters and no results.
  absl::Status Execute(const char* sql) const;
  absl::StatusOr<int64_t> QueryInt(absl::string_view sql) const;
  // Returns how many rows were written since the connection was opened.
  int64_t changes() const { return sqlite3_total_changes64(db_.get()); }
  // Returns whether a transaction is open. Some errors end a transaction.
  bool in_transaction() const { return sqlite3_get_autocommit(db_.get()) == 0; }
  // Returns the number of frames in the write-ahead log at the last commit. SQLite runs no
  // checkpoint by itself until the connection is closed.
  int log_frames() const { return *log_frames_; }
  // Returns a lower bound of the size of the log's file, computed from log_frames().
  int64_t log_bytes() const;
  // `mode` is a mode of PRAGMA wal_checkpoint.
  absl::Status Checkpoint(absl::string_view mode) const;
  // Returns the first bytes of the database file itself. Changes that are only in the log are not
  // included. If the file is shorter, the rest is zeros. Empty if there is no file.
  std::string FileStart() const;
  // Returns the header of the log's file. Empty if nothing was written to the log since the last
  // checkpoint.
  std::string LogStart() const;
  // Returns whether the last `max_frames` frames in the log's file match their checksums. If a
  // machine with another byte order has started the log, checks nothing and returns true.
  bool LogIsWhole(int max_frames) const;
  // For a log that may be damaged: keeps the log's file when the connection is closed. Otherwise
  // SQLite would copy the log into the database without checking it.
  void KeepLogAtClose() const;

 private:
  struct Close {
    void operator()(sqlite3* db) const { sqlite3_close_v2(db); }
  };
  // Reads bytes from one of SQLite's files. `which` is SQLITE_FCNTL_FILE_POINTER for the database,
  // or SQLITE_FCNTL_JOURNAL_POINTER for the log. Returns false if the file does not exist or is too
  // short. If it is too short, the rest of `bytes` is zeros.
  bool ReadFile(int which, int64_t offset, std::string* bytes) const;

  std::unique_ptr<int> log_frames_ = std::make_unique<int>(0);  // must outlive db_, which writes it
  std::unique_ptr<sqlite3, Close> db_;
};

// FAILED_PRECONDITION: another process holds the lock, or the file cannot be opened or written.
// RESOURCE_EXHAUSTED: the disk is full, or a quota or a file size limit is reached.
// DATA_LOSS: the file is damaged.
// INTERNAL: anything else.
absl::Status SqliteError(sqlite3* db, int code);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_SQLITE_DB_H_
