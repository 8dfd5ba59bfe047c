#include "service/store/session_schema.h"

#include <iterator>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace tidepool::service {
namespace {

// "TPL1". It distinguishes our databases from those of other programs.
constexpr int64_t kApplicationId = 0x54504c31;

// There are files of every older version, so never change a step that was released.
//
// A turn that is running has no end and no answer in its row, because both are computed from the
// log. The log is stored in chunks, so that an append does not rewrite the whole log.
constexpr char kVersion1[] = R"(
CREATE TABLE sessions (
  key INTEGER PRIMARY KEY AUTOINCREMENT,
  session_id TEXT NOT NULL UNIQUE,
  principal TEXT NOT NULL,
  model TEXT NOT NULL,
  model_digest TEXT NOT NULL,
  kind INTEGER NOT NULL DEFAULT 0,
  create_us INTEGER NOT NULL,
  update_us INTEGER NOT NULL,
  token_count INTEGER NOT NULL DEFAULT 0,
  turn_count INTEGER NOT NULL DEFAULT 0,
  epoch INTEGER NOT NULL DEFAULT 0,
  lease_request TEXT NOT NULL DEFAULT '',
  lease_until_us INTEGER NOT NULL DEFAULT 0);
CREATE INDEX sessions_by_principal ON sessions (principal, key);
CREATE TABLE turns (
  session INTEGER NOT NULL,
  turn INTEGER NOT NULL,
  request_id TEXT NOT NULL,
  start INTEGER NOT NULL,
  output_start INTEGER NOT NULL,
  end INTEGER NOT NULL DEFAULT 0,
  messages TEXT NOT NULL,
  answer TEXT NOT NULL DEFAULT '',
  finish INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (session, turn)) WITHOUT ROWID;
CREATE INDEX running_turns ON turns (session) WHERE finish = 0;
CREATE TABLE chunks (
  session INTEGER NOT NULL,
  start INTEGER NOT NULL,
  tokens BLOB NOT NULL,
  text TEXT NOT NULL,
  PRIMARY KEY (session, start)) WITHOUT ROWID;
)";

// This index is for --session-ttl, which finds sessions by the time of their last change.
constexpr char kVersion2[] = "CREATE INDEX sessions_by_update ON sessions (update_us);";

// The columns lease_body and body identify a repeated request. numerics_id identifies the workers
// that generated a response.
constexpr char kVersion3[] = R"(
ALTER TABLE sessions ADD COLUMN lease_body TEXT NOT NULL DEFAULT '';
ALTER TABLE turns ADD COLUMN body TEXT NOT NULL DEFAULT '';
ALTER TABLE turns ADD COLUMN numerics_id TEXT NOT NULL DEFAULT '';
)";

// These columns are hashes, which detect damage (session_seals.h).
constexpr char kVersion4[] = R"(
ALTER TABLE sessions ADD COLUMN log_hash BLOB NOT NULL DEFAULT x'';
ALTER TABLE sessions ADD COLUMN turns_hash BLOB NOT NULL DEFAULT x'';
ALTER TABLE sessions ADD COLUMN seal BLOB NOT NULL DEFAULT x'';
ALTER TABLE turns ADD COLUMN hash BLOB NOT NULL DEFAULT x'';
ALTER TABLE chunks ADD COLUMN hash BLOB NOT NULL DEFAULT x'';
CREATE TABLE store (
  one INTEGER PRIMARY KEY,
  store_id TEXT NOT NULL,
  commits INTEGER NOT NULL,
  sessions INTEGER NOT NULL,
  sum BLOB NOT NULL,
  schema BLOB NOT NULL,
  losses TEXT NOT NULL,
  seal BLOB NOT NULL);
)";

// Step number i upgrades from version i to version i + 1.
constexpr const char* kSteps[] = {kVersion1, kVersion2, kVersion3, kVersion4};
static_assert(std::size(kSteps) == kSessionSchemaVersion);

// Runs the missing steps. Requires: a transaction is open.
absl::Status Migrate(const SqliteDb& db, int64_t version,
                     const std::function<absl::Status()>& seal) {
  for (; version < kSessionSchemaVersion; ++version) {
    RETURN_IF_ERROR(db.Execute(kSteps[version]));
  }
  RETURN_IF_ERROR(seal());
  return db.Execute(absl::StrCat("PRAGMA application_id = ", kApplicationId,
                                 "; PRAGMA user_version = ", kSessionSchemaVersion)
                        .c_str());
}

}  // namespace

absl::Status BringSchemaUpToDate(const SqliteDb& db, const std::function<absl::Status()>& seal) {
  ASSIGN_OR_RETURN(const int64_t version, db.QueryInt("PRAGMA user_version"));
  ASSIGN_OR_RETURN(const int64_t application, db.QueryInt("PRAGMA application_id"));
  ASSIGN_OR_RETURN(const int64_t tables, db.QueryInt("SELECT count(*) FROM sqlite_schema"));
  const bool empty = version == 0 && tables == 0;
  if (!empty && application != kApplicationId) {
    return absl::FailedPreconditionError("it is the database of another program");
  }
  if (version < 0 || version > kSessionSchemaVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("its schema version is ", version, ", this program supports versions up to ",
                     kSessionSchemaVersion, ": use a newer program"));
  }
  if (version == kSessionSchemaVersion) return absl::OkStatus();
  // All steps are one transaction, so that an error leaves the file unchanged.
  RETURN_IF_ERROR(db.Execute("BEGIN IMMEDIATE"));
  absl::Status status = Migrate(db, version, seal);
  if (status.ok()) status = db.Execute("COMMIT");
  if (!status.ok() && db.in_transaction()) db.Execute("ROLLBACK").IgnoreError();
  return status;
}

absl::StatusOr<std::vector<std::string>> FindFaults(const SqliteDb& db) {
  std::vector<std::string> faults;
  ASSIGN_OR_RETURN(SqliteStatement check, db.Prepare("PRAGMA integrity_check"));
  while (true) {
    const absl::StatusOr<bool> more = check.Step();
    if (absl::IsDataLoss(more.status())) faults.emplace_back(more.status().message());
    if (absl::IsDataLoss(more.status()) || (more.ok() && !*more)) break;
    RETURN_IF_ERROR(more.status());
    if (check.Text(0) != "ok") faults.emplace_back(check.Text(0));
  }
  for (const absl::string_view table : {"turns", "chunks"}) {
    const absl::StatusOr<int64_t> strays = db.QueryInt(absl::StrCat(
        "SELECT count(*) FROM ", table, " WHERE session NOT IN (SELECT key FROM sessions)"));
    if (absl::IsDataLoss(strays.status())) {
      faults.push_back(absl::StrCat(table, ": ", strays.status().message()));
      continue;
    }
    RETURN_IF_ERROR(strays.status());
    if (*strays == 0) continue;
    faults.push_back(absl::StrCat(*strays, " rows of ", table, " belong to no session"));
  }
  return faults;
}

}  // namespace tidepool::service
