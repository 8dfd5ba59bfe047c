#include "service/store/sqlite_db.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace tidepool::service {

namespace {

// Why there is no room, of an error of the system; null: that is not what it says. SQLite itself
// takes only ENOSPC of a write for a full disk.
const char* FullDisk(int system_errno) {
  switch (system_errno) {
    case ENOSPC:
      return "its disk is full; make room, or move the store";
    case EDQUOT:
      return "its user's disk quota is used up; make room, raise the quota, or move the store";
    case EFBIG:
      return "a file may not get larger (ulimit -f, or the file system's limit); raise the limit, "
             "or move the store";
    default:
      return nullptr;
  }
}

// The errno of the latest call to the system that failed on one of the connection's files: of the
// database (SQLITE_FCNTL_FILE_POINTER) or of its log (SQLITE_FCNTL_JOURNAL_POINTER).
int LastErrno(sqlite3* db, int which) {
  sqlite3_file* file = nullptr;
  int last = 0;
  const bool open = sqlite3_file_control(db, "main", which, &file) == SQLITE_OK &&
                    file != nullptr && file->pMethods != nullptr;
  if (open) file->pMethods->xFileControl(file, SQLITE_FCNTL_LAST_ERRNO, &last);
  return last;
}

// Why there was no room for what could not be written; null: there was, or it is not known.
const char* NoRoom(sqlite3* db, int extended_code) {
  if (extended_code != SQLITE_IOERR_WRITE && extended_code != SQLITE_IOERR_FSYNC) return nullptr;
  // sqlite3_system_errno says nothing of a commit.
  const char* log = FullDisk(LastErrno(db, SQLITE_FCNTL_JOURNAL_POINTER));
  return log != nullptr ? log : FullDisk(LastErrno(db, SQLITE_FCNTL_FILE_POINTER));
}

}  // namespace

absl::Status SqliteError(sqlite3* db, int code) {
  const std::string reason = absl::StrCat("session store: ", sqlite3_errmsg(db), " (SQLite code ",
                                          sqlite3_extended_errcode(db), ")");
  switch (code & 0xff) {
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(absl::StrCat(reason, ": ", FullDisk(ENOSPC)));
    case SQLITE_IOERR:
      if (const char* full = NoRoom(db, sqlite3_extended_errcode(db)); full != nullptr) {
        return absl::ResourceExhaustedError(absl::StrCat(reason, ": ", full));
      }
      return absl::InternalError(reason);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::FailedPreconditionError(absl::StrCat(
          reason, ": another process has it open; end that, or choose another with --store"));
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return absl::FailedPreconditionError(reason);
    case SQLITE_CORRUPT:
      return absl::DataLossError(
          absl::StrCat(reason,
                       ": the file is damaged; restore a backup, or export what can be read "
                       "with `tidepool sessions export` and import it into a new store"));
    case SQLITE_NOTADB:
      return absl::DataLossError(
          absl::StrCat(reason,
                       ": the file is damaged, or no server wrote it; restore a backup, or choose "
                       "another file with --store"));
    default:
      return absl::InternalError(reason);
  }
}

SqliteStatement& SqliteStatement::Bind(int parameter, int64_t value) {
  CHECK_EQ(sqlite3_bind_int64(statement_.get(), parameter, value), SQLITE_OK);
  return *this;
}

SqliteStatement& SqliteStatement::Bind(int parameter, absl::string_view text) {
  CHECK_EQ(
      sqlite3_bind_text64(statement_.get(), parameter, text.data() == nullptr ? "" : text.data(),
                          text.size(), SQLITE_STATIC, SQLITE_UTF8),
      SQLITE_OK);
  return *this;
}

SqliteStatement& SqliteStatement::BindBlob(int parameter, absl::string_view bytes) {
  CHECK_EQ(
      sqlite3_bind_blob64(statement_.get(), parameter, bytes.data() == nullptr ? "" : bytes.data(),
                          bytes.size(), SQLITE_STATIC),
      SQLITE_OK);
  return *this;
}

absl::StatusOr<bool> SqliteStatement::Step() {
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  absl::Status error;
  if (code != SQLITE_DONE) error = SqliteError(sqlite3_db_handle(statement_.get()), code);
  Reset();
  if (!error.ok()) return error;
  return false;
}

absl::Status SqliteStatement::Run() {
  while (true) {
    ASSIGN_OR_RETURN(const bool row, Step());
    if (!row) return absl::OkStatus();
  }
}

void SqliteStatement::Reset() {
  sqlite3_reset(statement_.get());
  sqlite3_clear_bindings(statement_.get());
}

int64_t SqliteStatement::Int(int column) const {
  return sqlite3_column_int64(statement_.get(), column);
}

absl::string_view SqliteStatement::Text(int column) const {
  const void* bytes = sqlite3_column_blob(statement_.get(), column);
  const int size = sqlite3_column_bytes(statement_.get(), column);
  return absl::string_view(static_cast<const char*>(bytes), size);
}

bool SqliteStatement::HasClasses(absl::string_view classes) const {
  for (size_t i = 0; i < classes.size(); ++i) {
    const int wanted = classes[i] == 'i'   ? SQLITE_INTEGER
                       : classes[i] == 't' ? SQLITE_TEXT
                                           : SQLITE_BLOB;
    if (sqlite3_column_type(statement_.get(), static_cast<int>(i)) != wanted) return false;
  }
  return true;
}

absl::StatusOr<SqliteDb> SqliteDb::Open(const std::string& path) {
  // What was said in sessions is their users' alone. SQLite gives its side files the same mode.
  if (path != ":memory:") {
    const int file = open(path.c_str(), O_CREAT | O_CLOEXEC | O_RDWR, 0600);
    if (file >= 0) close(file);  // else SQLite says why
  }
  sqlite3* raw = nullptr;
  const int code =
      sqlite3_open_v2(path.c_str(), &raw,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  SqliteDb db;
  db.db_.reset(raw);
  if (raw == nullptr) return absl::InternalError("session store: no memory for SQLite");
  if (code != SQLITE_OK) return SqliteError(raw, code);
  sqlite3_extended_result_codes(raw, 1);
  return db;
}

absl::StatusOr<SqliteStatement> SqliteDb::Prepare(absl::string_view sql) const {
  sqlite3_stmt* raw = nullptr;
  const int code = sqlite3_prepare_v3(db_.get(), sql.data(), static_cast<int>(sql.size()),
                                      SQLITE_PREPARE_PERSISTENT, &raw, nullptr);
  if (code != SQLITE_OK) return SqliteError(db_.get(), code);
  SqliteStatement statement;
  statement.statement_.reset(raw);
  return statement;
}

absl::Status SqliteDb::Execute(const char* sql) const {
  const int code = sqlite3_exec(db_.get(), sql, nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : SqliteError(db_.get(), code);
}

absl::StatusOr<int64_t> SqliteDb::QueryInt(absl::string_view sql) const {
  ASSIGN_OR_RETURN(SqliteStatement statement, Prepare(sql));
  ASSIGN_OR_RETURN(const bool row, statement.Step());
  if (!row) return absl::InternalError(absl::StrCat("session store: no answer to ", sql));
  return statement.Int(0);
}

}  // namespace tidepool::service
