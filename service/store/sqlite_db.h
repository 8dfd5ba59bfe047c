// SqliteDb and SqliteStatement: RAII wrappers with absl::Status for the part of SQLite's C API that
// the store uses.
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

// A prepared statement. Bound text must outlive the run, because SQLite does not copy it.
// Thread-compatible; the connection outlives it.
class SqliteStatement {
 public:
  SqliteStatement() = default;

  // Parameters count from 1.
  SqliteStatement& Bind(int parameter, int64_t value);
  SqliteStatement& Bind(int parameter, absl::string_view text);
  SqliteStatement& BindBlob(int parameter, absl::string_view bytes);

  // True: there is a row. False: done; the statement is ready to be bound again.
  absl::StatusOr<bool> Step();
  // Steps to the end, ignores rows, and makes the statement ready to be bound again.
  absl::Status Run();
  // Makes the statement ready to be bound again before its last row.
  void Reset();

  // Columns count from 0. The text is valid until the next step.
  int64_t Int(int column) const;
  absl::string_view Text(int column) const;
  // Whether the columns have these storage classes, one letter each: i(nteger), t(ext), b(lob).
  // A value of another class has the same bytes, but queries by this column do not find it.
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
  // ":memory:" opens a private database without a file. Errors are those of SqliteError.
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
  // The first bytes of the database file itself, without changes that are only in the log. Padded
  // with zeros if the file is shorter. Empty if there is no file.
  std::string FileStart() const;
  // The head of the log's file. Empty: nothing was written to the log since the last checkpoint.
  std::string LogStart() const;
  // Whether the last `max_frames` frames of the log's file match their checksums. Not checked, and
  // true, if a machine with another byte order started the log.
  bool LogIsWhole(int max_frames) const;
  // Keeps a log that may be damaged when the connection is closed. Otherwise SQLite copies it into
  // the file without checking it.
  void KeepLogAtClose() const;

 private:
  struct Close {
    void operator()(sqlite3* db) const { sqlite3_close_v2(db); }
  };
  // `which` is SQLITE_FCNTL_FILE_POINTER or, for the log, SQLITE_FCNTL_JOURNAL_POINTER. False: the
  // file does not exist, or is shorter, and the rest of `bytes` is zeros.
  bool ReadFile(int which, int64_t offset, std::string* bytes) const;

  std::unique_ptr<int> log_frames_ = std::make_unique<int>(0);  // outlives db_, which writes it
  std::unique_ptr<sqlite3, Close> db_;
};

// FAILED_PRECONDITION: another process holds the lock, or the file cannot be opened or written;
// RESOURCE_EXHAUSTED: the disk is full, or a quota or a file size limit is reached;
// DATA_LOSS: the file is damaged; INTERNAL: anything else.
absl::Status SqliteError(sqlite3* db, int code);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_SQLITE_DB_H_
