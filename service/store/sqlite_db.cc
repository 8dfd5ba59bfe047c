#include "service/store/sqlite_db.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "service/store/log_checksum.h"
#include "service/store/store_errors.h"

namespace tidepool::service {

namespace {

// These constants describe the format of the log: https://www.sqlite.org/fileformat2.html#walformat
constexpr int64_t kLogHead = 32;
constexpr int64_t kLogPageSizeAt = 8;
constexpr int64_t kLogSaltsAt = 16;
constexpr int64_t kLogChecksumAt = 24;
// The magic number of a log whose checksums use this machine's byte order.
constexpr uint32_t kLogMagic = std::endian::native == std::endian::little ? 0x377f0682 : 0x377f0683;
constexpr int64_t kFrameHead = 24;
constexpr int64_t kFrameBytes = kFrameHead + kPageBytes;
constexpr int64_t kFrameSaltsAt = 8;  // a frame's checksum covers the bytes before this
constexpr int64_t kFrameChecksumAt = 16;
constexpr int64_t kSaltBytes = 8;
constexpr int kFramesPerRead = 64;

// Returns whether `frames` continue a log that has the checksum `sum` before them. Advances `sum`.
bool FramesAreWhole(absl::string_view frames, absl::string_view salts, LogChecksum* sum) {
  for (; !frames.empty(); frames.remove_prefix(kFrameBytes)) {
    sum->Add(frames.substr(0, kFrameSaltsAt));
    sum->Add(frames.substr(kFrameHead, kPageBytes));
    if (frames.substr(kFrameSaltsAt, kSaltBytes) != salts) return false;
    if (*sum != LogChecksum::Stored(frames, kFrameChecksumAt)) return false;
  }
  return true;
}

// Returns a message if this errno means that there is no space, otherwise null. This is needed
// because SQLite recognises a full disk only if a write fails with ENOSPC.
const char* FullDisk(int system_errno) {
  switch (system_errno) {
    case ENOSPC:
      return "its disk is full; free space, or move the store";
    case EDQUOT:
      return "its user's disk quota is exceeded; free space, raise the quota, or move the store";
    case EFBIG:
      return "the file has reached its size limit (ulimit -f, or the file system's limit); raise "
             "the limit, or move the store";
    default:
      return nullptr;
  }
}

// Returns the errno of the last system call that failed on one of the connection's files. `which`
// is SQLITE_FCNTL_FILE_POINTER for the database, or SQLITE_FCNTL_JOURNAL_POINTER for the log.
int LastErrno(sqlite3* db, int which) {
  sqlite3_file* file = nullptr;
  int last = 0;
  const bool open = sqlite3_file_control(db, "main", which, &file) == SQLITE_OK &&
                    file != nullptr && file->pMethods != nullptr;
  if (open) file->pMethods->xFileControl(file, SQLITE_FCNTL_LAST_ERRNO, &last);
  return last;
}

// Returns a message if a write failed because there was no space. Returns null for any other
// reason.
const char* NoRoom(sqlite3* db, int extended_code) {
  if (extended_code != SQLITE_IOERR_WRITE && extended_code != SQLITE_IOERR_FSYNC) return nullptr;
  // After a commit, sqlite3_system_errno is not set. So look at both files.
  const char* log = FullDisk(LastErrno(db, SQLITE_FCNTL_JOURNAL_POINTER));
  return log != nullptr ? log : FullDisk(LastErrno(db, SQLITE_FCNTL_FILE_POINTER));
}

}  // namespace

absl::Status SqliteError(sqlite3* db, int code) {
  const std::string reason = absl::StrCat("session store: ", Utf8Text(sqlite3_errmsg(db)),
                                          " (SQLite code ", sqlite3_extended_errcode(db), ")");
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
      return absl::FailedPreconditionError(
          absl::StrCat(reason,
                       ": another process has it open; stop that process, or choose another store "
                       "with --store"));
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
      return absl::DataLossError(absl::StrCat(
          reason,
          ": the file is damaged, or is not a session store; restore a backup, or choose "
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

TolerateIndexDamage::TolerateIndexDamage(const SqliteStatement& statement)
    : db_(sqlite3_db_handle(statement.statement_.get())) {
  sqlite3_db_config(db_, SQLITE_DBCONFIG_WRITABLE_SCHEMA, 1, nullptr);
}

TolerateIndexDamage::~TolerateIndexDamage() {
  sqlite3_db_config(db_, SQLITE_DBCONFIG_WRITABLE_SCHEMA, 0, nullptr);
}

absl::StatusOr<SqliteDb> SqliteDb::Open(const std::string& path) {
  // Conversations are private, so only the owner may read the file. SQLite creates its other files
  // with the same mode.
  if (path != ":memory:") {
    const int file = open(path.c_str(), O_CREAT | O_CLOEXEC | O_RDWR, 0600);
    if (file >= 0) close(file);  // if this fails, SQLite reports the reason
  }
  sqlite3* raw = nullptr;
  const int code =
      sqlite3_open_v2(path.c_str(), &raw,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  SqliteDb db;
  db.db_.reset(raw);
  if (raw == nullptr) return absl::InternalError("session store: out of memory for SQLite");
  if (code != SQLITE_OK) return SqliteError(raw, code);
  sqlite3_extended_result_codes(raw, 1);
  sqlite3_wal_hook(
      raw,
      [](void* frames, sqlite3*, const char*, int count) {
        *static_cast<int*>(frames) = count;
        return SQLITE_OK;
      },
      db.log_frames_.get());
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

absl::Status SqliteDb::PrepareAll(
    std::initializer_list<std::pair<SqliteStatement*, absl::string_view>> statements) const {
  for (const auto& [statement, sql] : statements) {
    ASSIGN_OR_RETURN(*statement, Prepare(sql));
  }
  return absl::OkStatus();
}

absl::Status SqliteDb::Execute(const char* sql) const {
  const int code = sqlite3_exec(db_.get(), sql, nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : SqliteError(db_.get(), code);
}

int64_t SqliteDb::log_bytes() const {
  return *log_frames_ == 0 ? 0 : kLogHead + *log_frames_ * kFrameBytes;
}

absl::Status SqliteDb::Checkpoint(absl::string_view mode) const {
  RETURN_IF_ERROR(Execute(absl::StrCat("PRAGMA wal_checkpoint(", mode, ")").c_str()));
  *log_frames_ = 0;
  return absl::OkStatus();
}

bool SqliteDb::ReadFile(int which, int64_t offset, std::string* bytes) const {
  sqlite3_file* file = nullptr;
  const bool open = sqlite3_file_control(db_.get(), "main", which, &file) == SQLITE_OK &&
                    file != nullptr && file->pMethods != nullptr;
  if (!open) {
    bytes->clear();
    return false;
  }
  return file->pMethods->xRead(file, bytes->data(), static_cast<int>(bytes->size()), offset) ==
         SQLITE_OK;
}

std::string SqliteDb::FileStart() const {
  std::string start(64 << 10, '\0');
  ReadFile(SQLITE_FCNTL_FILE_POINTER, 0, &start);
  return start;
}

std::string SqliteDb::LogStart() const {
  if (*log_frames_ == 0) return "";
  std::string start(kLogHead, '\0');
  ReadFile(SQLITE_FCNTL_JOURNAL_POINTER, 0, &start);
  return start;
}

bool SqliteDb::LogIsWhole(int max_frames) const {
  const std::string start = LogStart();
  if (start.empty()) return true;
  const bool readable =
      LogWord(start, 0) == kLogMagic && LogWord(start, kLogPageSizeAt) == kPageBytes;
  if (!readable) return true;
  const int first = std::max(0, *log_frames_ - max_frames);
  LogChecksum sum = LogChecksum::Stored(start, kLogChecksumAt);
  std::string bytes(kLogChecksumBytes, '\0');
  if (first > 0) {
    const int64_t before = kLogHead + (first - 1) * kFrameBytes + kFrameChecksumAt;
    if (!ReadFile(SQLITE_FCNTL_JOURNAL_POINTER, before, &bytes)) return false;
    sum = LogChecksum::Stored(bytes, 0);
  }
  const absl::string_view salts = absl::string_view(start).substr(kLogSaltsAt, kSaltBytes);
  for (int frame = first; frame < *log_frames_; frame += kFramesPerRead) {
    bytes.resize(std::min(kFramesPerRead, *log_frames_ - frame) * kFrameBytes);
    const int64_t at = kLogHead + frame * kFrameBytes;
    if (!ReadFile(SQLITE_FCNTL_JOURNAL_POINTER, at, &bytes)) return false;
    if (!FramesAreWhole(bytes, salts, &sum)) return false;
  }
  return true;
}

void SqliteDb::KeepLogAtClose() const {
  sqlite3_db_config(db_.get(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
}

absl::StatusOr<int64_t> SqliteDb::QueryInt(absl::string_view sql) const {
  ASSIGN_OR_RETURN(SqliteStatement statement, Prepare(sql));
  ASSIGN_OR_RETURN(const bool row, statement.Step());
  if (!row) return absl::InternalError(absl::StrCat("session store: no result for ", sql));
  return statement.Int(0);
}

}  // namespace tidepool::service
