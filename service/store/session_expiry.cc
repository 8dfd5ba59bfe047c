#include "service/store/session_expiry.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "service/store/store_errors.h"

namespace tidepool::service {
namespace {

// Used in place of a key if the index that expiry uses is damaged. No session has this key.
constexpr int64_t kNoKey = 0;

}  // namespace

std::vector<std::string> SessionExpiry::TakeFindings() { return std::exchange(findings_, {}); }

absl::Status SessionExpiry::AddFinding(int64_t key, const absl::Status& damage) {
  if (!absl::IsDataLoss(damage) || !damaged_.insert(key).second) return damage;
  const std::string id = key == kNoKey ? "" : sessions_->IndexedId(key);
  const std::string what(id.empty() ? damage.message() : WithSession(id, damage).message());
  findings_.push_back(key == kNoKey
                          ? absl::StrCat("--session-ttl cannot find expired sessions: ", what)
                          : absl::StrCat(what, ". ", kNotExpired));
  return damage;
}

absl::StatusOr<std::vector<SessionRow>> SessionExpiry::FindExpired(absl::Time latest, int64_t most,
                                                                   const StoreTime& now) {
  const int64_t limit = most + static_cast<int64_t>(damaged_.size());
  const absl::StatusOr<std::vector<int64_t>> keys = sessions_->UnchangedSince(latest, limit, now);
  if (!keys.ok()) return AddFinding(kNoKey, keys.status());
  std::vector<SessionRow> expired;
  absl::Status damage;
  for (const int64_t key : *keys) {
    if (damaged_.contains(key)) continue;
    absl::StatusOr<SessionRow> row = sessions_->FindKey(key, now);
    // If the index is damaged, its time may differ from the time in the row.
    if (row.ok() && row->info.update_time > latest) continue;
    SessionLogData log;
    const absl::Status whole = row.ok() ? logs_->Read(*row, &log) : row.status();
    if (!whole.ok()) {
      damage = AddFinding(key, whole);
      if (!absl::IsDataLoss(damage)) return damage;
      continue;
    }
    expired.push_back(*std::move(row));
  }
  RETURN_IF_ERROR(damage);
  return expired;
}

absl::Status SessionExpiry::Delete(const SessionRow& row) {
  if (!row_only_.contains(row.key)) {
    const absl::Status deleted = logs_->Delete(row.key);
    if (absl::IsDataLoss(deleted)) {
      // SQLite has reached a page that it cannot read. The log itself was read, so this page
      // contains rows of another session. The next transaction deletes only the session's row. The
      // rows of its log remain, but no session reads them any more.
      row_only_.insert(row.key);
      findings_.push_back(absl::StrCat(
          "session '", row.info.session_id,
          "' has expired, but the rows of its log stay in the file: ", deleted.message()));
    }
    RETURN_IF_ERROR(deleted);
  }
  const absl::Status removed = sessions_->Remove(row);
  return removed.ok() ? removed : AddFinding(row.key, removed);
}

absl::StatusOr<int64_t> SessionExpiry::Run(absl::Duration age, int64_t most, const StoreTime& now) {
  const absl::Time latest = absl::FromUnixMicros(absl::ToUnixMicros(now.expiry - age));
  // Read all expired sessions before the first is deleted. When SQLite has reached a page that it
  // cannot read, it refuses every delete in the same transaction.
  ASSIGN_OR_RETURN(const std::vector<SessionRow> expired, FindExpired(latest, most, now));
  for (const SessionRow& row : expired) {
    RETURN_IF_ERROR(Delete(row));
  }
  return static_cast<int64_t>(expired.size());
}

}  // namespace tidepool::service
