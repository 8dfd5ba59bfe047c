#include "service/store/sqlite_sessions.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/base/status_macros.h"
#include "service/store/session_repairs.h"
#include "service/store/session_seals.h"
#include "service/store/store_errors.h"

namespace tidepool::service {
namespace {

// ALREADY_EXISTS if the log or the lease has this request_id with another body.
absl::Status CheckBody(const SessionRow& row, const SessionLogData& log, const TurnRequest& turn) {
  const auto differs = [&turn](absl::string_view known) {
    return !known.empty() && !turn.body_digest.empty() && known != turn.body_digest;
  };
  const bool leased = row.info.busy && row.lease_request == turn.request_id;
  if (leased && differs(row.lease_body)) return AnotherRequest(turn.request_id);
  const auto logged =
      std::find_if(log.turns.begin(), log.turns.end(),
                   [&turn](const StoredTurn& one) { return one.request_id == turn.request_id; });
  const bool another = logged != log.turns.end() && differs(logged->body_digest);
  return another ? AnotherRequest(turn.request_id) : absl::OkStatus();
}

void DropLease(SessionRow* row) {
  row->lease_request.clear();
  row->lease_until_us = 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SqliteSessions>> SqliteSessions::Open(
    const SqliteDb& db, StoreLedger* ledger, const SealedSessionsOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<SealedSessions> sessions,
                   SealedSessions::Open(db, ledger, options));
  ASSIGN_OR_RETURN(std::unique_ptr<SealedLogs> logs, SealedLogs::Open(db));
  return std::unique_ptr<SqliteSessions>(new SqliteSessions(std::move(sessions), std::move(logs)));
}

SqliteSessions::SqliteSessions(std::unique_ptr<SealedSessions> sessions,
                               std::unique_ptr<SealedLogs> logs)
    : sessions_(std::move(sessions)),
      logs_(std::move(logs)),
      expiry_(sessions_.get(), logs_.get()) {}

absl::StatusOr<SessionInfo> SqliteSessions::Create(const NewSession& session,
                                                   const StoreTime& now) {
  ASSIGN_OR_RETURN(SessionRow row, sessions_->Add(session, now));
  return std::move(row.info);
}

absl::StatusOr<SessionLogData> SqliteSessions::Get(const std::optional<std::string>& principal,
                                                   absl::string_view session_id,
                                                   const StoreTime& now) {
  ASSIGN_OR_RETURN(const SessionRow row, principal.has_value()
                                             ? sessions_->FindOwned(*principal, session_id, now)
                                             : sessions_->Find(session_id, now));
  SessionLogData log;
  RETURN_IF_ERROR(logs_->Read(row, &log));
  EndAbandonedTurn(&log);
  return log;
}

absl::Status SqliteSessions::Delete(absl::string_view principal, absl::string_view session_id,
                                    const StoreTime& now, DeletedRows rows) {
  absl::StatusOr<SessionRow> listed = sessions_->FindListed(principal, session_id, now);
  if (absl::IsNotFound(listed.status())) {
    absl::StatusOr<SessionRow> other =
        sessions_->FindListed(principal, BytesOfText(session_id), now);
    if (other.ok()) listed = std::move(other);
  }
  RETURN_IF_ERROR(listed.status());
  const SessionRow& row = *listed;
  const bool sealed = CheckSeal(row).ok();
  // The turn of a damaged session cannot append anything, so it does not prevent the deletion.
  if (sealed && row.info.busy) return SessionBusy(session_id, row.lease_request);
  // Do not read the log here. When SQLite has reached a page that it cannot read, it refuses every
  // delete in the same transaction.
  if (rows == DeletedRows::kRow) return sessions_->Remove(row);
  SessionLogData log;
  const bool whole = sealed && logs_->Read(row, &log).ok();
  if (!whole) return DeleteDamaged(row, now, sessions_.get(), logs_.get());
  RETURN_IF_ERROR(logs_->Delete(row.key));
  return sessions_->Remove(row);
}

absl::StatusOr<int64_t> SqliteSessions::Expire(absl::Duration age, int64_t most,
                                               const StoreTime& now) {
  return expiry_.Run(age, most, now);
}

absl::StatusOr<SessionInfo> SqliteSessions::Insert(const SessionLogData& session,
                                                   const StoreTime& now) {
  const SessionInfo& info = session.info;
  ASSIGN_OR_RETURN(SessionRow row,
                   sessions_->Add({.session_id = info.session_id,
                                   .principal = info.principal,
                                   .model = info.model,
                                   .model_digest = info.model_digest},
                                  StoreTime{.wall = info.create_time, .monotonic = now.monotonic}));
  RETURN_IF_ERROR(logs_->AddLog(&row, session));
  RETURN_IF_ERROR(sessions_->Save(&row));
  return std::move(row.info);
}

absl::StatusOr<SessionInfo> SqliteSessions::Replace(const SessionLogData& session,
                                                    const StoreTime& now) {
  const SessionInfo& info = session.info;
  ASSIGN_OR_RETURN(SessionRow row, sessions_->FindOwned(info.principal, info.session_id, now));
  if (row.info.busy) return SessionBusy(info.session_id, row.lease_request);
  if (row.info.epoch != info.epoch) return SessionChanged(info.session_id);
  RETURN_IF_ERROR(logs_->Clear(&row));
  RETURN_IF_ERROR(logs_->AddLog(&row, session));
  ++row.info.epoch;
  RETURN_IF_ERROR(sessions_->Save(&row));
  return std::move(row.info);
}

absl::StatusOr<OpenTurn> SqliteSessions::BeginTurn(const TurnRequest& turn, const StoreTime& now) {
  ASSIGN_OR_RETURN(SessionRow row, sessions_->FindOwned(turn.principal, turn.session_id, now));
  if (row.info.busy && row.lease_request != turn.request_id) {
    return SessionBusy(turn.session_id, row.lease_request);
  }
  OpenTurn open;
  // Check the whole log before anything depends on it.
  RETURN_IF_ERROR(logs_->Read(row, &open.log));
  RETURN_IF_ERROR(CheckBody(row, open.log, turn));
  const std::pair<Hash128, Hash128> read(row.log_hash, row.turns_hash);
  ASSIGN_OR_RETURN(const bool continues, logs_->ReopenTurn(&row, open.log, turn.request_id));
  if (!continues) {
    // If a front has lost the lease during its turn, that turn may still be marked as running.
    RETURN_IF_ERROR(logs_->UpdateRunningTurn(&row, TurnFinish::kCancelled, ""));
  }
  ++row.info.epoch;
  row.lease_request = turn.request_id;
  row.lease_until_us = absl::ToInt64Microseconds(now.monotonic + turn.lease);
  row.lease_body = turn.body_digest;
  RETURN_IF_ERROR(sessions_->Save(&row));
  open.epoch = row.info.epoch;
  open.log.info = row.info;
  if (read == std::pair(row.log_hash, row.turns_hash)) return open;
  open.log = {};
  RETURN_IF_ERROR(logs_->Read(row, &open.log));
  return open;
}

absl::Status SqliteSessions::RenewLease(absl::string_view session_id, int64_t epoch,
                                        absl::Duration until) {
  ASSIGN_OR_RETURN(SessionRow row, sessions_->Find(session_id, StoreTime()));
  if (row.info.epoch != epoch || row.lease_request.empty()) return LeaseLost(session_id);
  row.lease_until_us = absl::ToInt64Microseconds(until);
  return sessions_->Save(&row);
}

absl::Status SqliteSessions::ReleaseLease(absl::string_view session_id, int64_t epoch) {
  ASSIGN_OR_RETURN(SessionRow row, sessions_->Find(session_id, StoreTime()));
  if (row.info.epoch != epoch) return absl::OkStatus();
  DropLease(&row);
  return sessions_->Save(&row);
}

absl::Status SqliteSessions::Append(const AppendRequest& append, const StoreTime& now) {
  absl::StatusOr<SessionRow> found = sessions_->Find(append.session_id, now);
  if (absl::IsNotFound(found.status())) return LeaseLost(append.session_id);
  RETURN_IF_ERROR(found.status());
  SessionRow row = *std::move(found);
  if (row.info.epoch != append.epoch) return LeaseLost(append.session_id);
  if (row.info.token_count != append.expected_length ||
      (append.begin.has_value() && append.begin->kept > row.info.token_count)) {
    return LengthDiffers(append.session_id, row.info.token_count, append.expected_length);
  }
  if (append.begin.has_value()) RETURN_IF_ERROR(logs_->StartTurn(&row, *append.begin));
  if (!append.output_ids.empty() || !append.output_text.empty()) {
    RETURN_IF_ERROR(logs_->AddOutput(&row, append.output_ids, append.output_text));
  }
  if (!append.numerics_id.empty() || append.finish != TurnFinish::kRunning) {
    RETURN_IF_ERROR(logs_->UpdateRunningTurn(&row, append.finish, append.numerics_id));
  }
  if (append.finish != TurnFinish::kRunning) DropLease(&row);
  row.info.update_time = now.wall;
  return sessions_->Save(&row);
}

}  // namespace tidepool::service
