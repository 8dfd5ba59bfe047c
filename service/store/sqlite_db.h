// Sqlite and SqliteStatement: the part of SQLite's C API that the store uses, with owners and
// statuses.
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

// Of the store's file.
inline constexpr int64_t kPageBytes = 4096;

// A prepared statement between one use and the next: bound values are read while it runs, so what
// they point to outlives the run. Thread-compatible; the connection outlives it.
class SqliteStatement {
 public:
  SqliteStatement() = default;

  // Parameters count from 1.
  SqliteStatement& Bind(int parameter, int64_t value);
  SqliteStatement& Bind(int parameter, absl::string_view text);
  SqliteStatement& BindBlob(int parameter, absl::string_view bytes);

  // True: there is a row. False: done; the statement is ready to be bound again.
  absl::StatusOr<bool> Step();
  // Steps to the end, whatever rows come, and makes the statement ready again.
  absl::Status Run();
  // Ready again before the end.
  void Reset();

  // Columns count from 0; the text lives until the next step.
  int64_t Int(int column) const;
  absl::string_view Text(int column) const;
  // Whether the columns have these storage classes, one letter each: i(nteger), t(ext), b(lob).
  // A row of another class has the same bytes, and no query finds it by them.
  bool HasClasses(absl::string_view classes) const;

 private:
  friend class SqliteDb;
  friend class TolerateIndexDamage;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

// While this object exists, its connection deletes and updates rows even if an index does not have
// them. Otherwise SQLite ends such a statement with SQLITE_CORRUPT_INDEX. No statement of the
// connection may be in use when it is created or destroyed.
class TolerateIndexDamage {
 public:
  // Any statement of the connection.
  explicit TolerateIndexDamage(const SqliteStatement& statement);
  ~TolerateIndexDamage();
  TolerateIndexDamage(const TolerateIndexDamage&) = delete;
  TolerateIndexDamage& operator=(const TolerateIndexDamage&) = delete;

 private:
  sqlite3* const db_;
};

// A connection. Thread-compatible.
class SqliteDb {
 public:
  // ":memory:" for a private one without a file. Errors as StatusOf.
  static absl::StatusOr<SqliteDb> Open(const std::string& path);

  absl::StatusOr<SqliteStatement> Prepare(absl::string_view sql) const;
  // Prepares several statements, each into its variable.
  absl::Status PrepareAll(
      std::initializer_list<std::pair<SqliteStatement*, absl::string_view>> statements) const;
  // Statements without parameters or results.
  absl::Status Execute(const char* sql) const;
  absl::StatusOr<int64_t> QueryInt(absl::string_view sql) const;
  // Rows that were written since the connection was opened.
  int64_t changes() const { return sqlite3_total_changes64(db_.get()); }
  // Whether a transaction is open: some errors end it.
  bool in_transaction() const { return sqlite3_get_autocommit(db_.get()) == 0; }
  // Number of frames in the write-ahead log at the last commit. There is no automatic checkpoint
  // until the connection is closed.
  int log_frames() const { return *log_frames_; }
  // Minimum size of the log's file.
  int64_t log_bytes() const;
  // `mode` is that of PRAGMA wal_checkpoint.
  absl::Status Checkpoint(absl::string_view mode) const;
  // The first bytes of the file itself, without what the log holds. Zeros where it is shorter;
  // empty without a file.
  std::string FileStart() const;
  // The head of the log's file. Empty: nothing was written to the log since the last checkpoint.
  std::string LogStart() const;
  // Whether the last `max_frames` frames of the log's file are what SQLite wrote there, by their
  // checksums. True if the log was begun on a machine of another byte order.
  bool LogIsWhole(int max_frames) const;
  // Leaves the log as it is when the connection is closed, because it may be damaged. SQLite copies
  // it into the file otherwise, without looking at its checksums.
  void KeepLogAtClose() const;

 private:
  struct Close {
    void operator()(sqlite3* db) const { sqlite3_close_v2(db); }
  };
  // `which`: SQLITE_FCNTL_FILE_POINTER or SQLITE_FCNTL_JOURNAL_POINTER, the log. False: there is no
  // such file, or it is shorter and the rest of `bytes` is zeros.
  bool ReadFile(int which, int64_t offset, std::string* bytes) const;

  std::unique_ptr<int> log_frames_ = std::make_unique<int>(0);  // outlives db_, which writes it
  std::unique_ptr<sqlite3, Close> db_;
};

// FAILED_PRECONDITION: another process holds the lock, or the file cannot be opened or written;
// RESOURCE_EXHAUSTED: the disk is full, or a quota or a limit of a file's size is reached;
// DATA_LOSS: the file is damaged; INTERNAL: anything else.
absl::Status SqliteError(sqlite3* db, int code);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_SQLITE_DB_H_
