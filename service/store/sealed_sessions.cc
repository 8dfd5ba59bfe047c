#include "service/store/sealed_sessions.h"

#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "service/store/lease.h"
#include "service/store/session_seals.h"
#include "service/store/store_errors.h"

namespace tidepool::service {
namespace {

void SetBusy(const StoreTime& now, SessionRow* row) {
  row->info.busy = HoldsLease(row->lease_until_us, absl::ToInt64Microseconds(now.monotonic));
}

absl::Status IndexDiffers(absl::string_view session_id) {
  return SessionDamaged(session_id, "the index of sessions does not match them");
}

absl::StatusOr<std::vector<int64_t>> ReadKeys(RowCursor<int64_t> cursor) {
  std::vector<int64_t> keys;
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<int64_t> key, cursor.Next());
    if (!key.has_value()) return keys;
    keys.push_back(*key);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<SealedSessions>> SealedSessions::Open(
    const SqliteDb& db, StoreLedger* ledger, const SealedSessionsOptions& options) {
  ASSIGN_OR_RETURN(SessionTable table, SessionTable::Open(db, options.lookup));
  return std::unique_ptr<SealedSessions>(new SealedSessions(std::move(table), ledger, options));
}

SealedSessions::SealedSessions(SessionTable table, StoreLedger* ledger,
                               const SealedSessionsOptions& options)
    : table_(std::move(table)), ledger_(ledger), options_(options) {}

absl::StatusOr<SessionRow> SealedSessions::FindUnchecked(absl::string_view session_id,
                                                         const StoreTime& now) {
  ASSIGN_OR_RETURN(std::optional<SessionRow> row, table_.Find(session_id));
  if (!row.has_value()) return NoSuchSession(session_id);
  if (row->info.session_id != session_id) return IndexDiffers(session_id);
  SetBusy(now, &*row);
  return *std::move(row);
}

absl::StatusOr<SessionRow> SealedSessions::FindKey(int64_t key, const StoreTime& now) {
  ASSIGN_OR_RETURN(std::optional<SessionRow> row, table_.At(key));
  if (!row.has_value()) {
    return absl::DataLossError("session store: an index contains a session that does not exist");
  }
  RETURN_IF_ERROR(CheckSeal(*row));
  SetBusy(now, &*row);
  return *std::move(row);
}

absl::StatusOr<SessionRow> SealedSessions::Find(absl::string_view session_id,
                                                const StoreTime& now) {
  ASSIGN_OR_RETURN(SessionRow row, FindUnchecked(session_id, now));
  RETURN_IF_ERROR(CheckSeal(row));
  return row;
}

absl::StatusOr<SessionRow> SealedSessions::FindOwned(absl::string_view principal,
                                                     absl::string_view session_id,
                                                     const StoreTime& now) {
  ASSIGN_OR_RETURN(SessionRow row, Find(session_id, now));
  if (row.info.principal != principal) return NoSuchSession(session_id);
  return row;
}

absl::StatusOr<SessionRow> SealedSessions::FindListed(absl::string_view principal,
                                                      absl::string_view session_id,
                                                      const StoreTime& now) {
  ASSIGN_OR_RETURN(std::optional<SessionRow> row, table_.Find(session_id));
  if (!row.has_value()) return NoSuchSession(session_id);
  const bool damaged = !CheckSeal(*row).ok();
  if (row->info.session_id != session_id && !damaged) return IndexDiffers(session_id);
  if (row->info.principal != principal) {
    if (!damaged) return NoSuchSession(session_id);
    ASSIGN_OR_RETURN(const bool owned, table_.IsIndexedUnder(principal, row->key));
    if (!owned) return NoSuchSession(session_id);
  }
  SetBusy(now, &*row);
  return *std::move(row);
}

absl::Status SealedSessions::CheckQuota(absl::string_view principal) {
  if (options_.max_sessions == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const int64_t have, table_.CountOf(principal));
  return have < options_.max_sessions ? absl::OkStatus() : TooManySessions(have);
}

absl::StatusOr<SessionRow> SealedSessions::Add(const NewSession& session, const StoreTime& now) {
  const absl::StatusOr<SessionRow> taken = FindUnchecked(session.session_id, now);
  if (taken.ok()) return SessionIdTaken(session.session_id);
  if (!absl::IsNotFound(taken.status())) return taken.status();
  RETURN_IF_ERROR(CheckQuota(session.principal));
  RETURN_IF_ERROR(table_.Insert(session, now.wall));
  ASSIGN_OR_RETURN(SessionRow row, FindUnchecked(session.session_id, now));
  row.log_hash = ChunksStart(row.info.session_id);
  row.turns_hash = TurnsStart(row.info.session_id);
  ledger_->AddSession(row.seal);
  RETURN_IF_ERROR(Save(&row));
  return row;
}

absl::Status SealedSessions::Save(SessionRow* row) {
  const Hash128 before = row->seal;
  row->seal = SealOf(*row);
  ledger_->ReplaceSeal(before, row->seal);
  return table_.Update(*row);
}

absl::Status SealedSessions::Remove(const SessionRow& row) {
  if (CheckSeal(row).ok()) {
    RETURN_IF_ERROR(table_.Delete(row.key));
    ledger_->RemoveSession(row.seal);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(table_.DeleteDamaged(row.key));
  // The ledger must subtract the seal of this row, but the seal is not known. So count all sessions
  // again.
  const SessionScan scan = Scan();
  RETURN_IF_ERROR(scan.end);
  ledger_->Recount(scan.sessions, scan.sum);
  return absl::OkStatus();
}

SessionScan SealedSessions::Scan() {
  SessionScan scan;
  absl::flat_hash_set<std::string> names;
  RowCursor<SessionRow> rows = table_.All();
  while (true) {
    const absl::StatusOr<std::optional<SessionRow>> row = rows.Next();
    if (!row.ok()) scan.end = row.status();
    if (!row.ok() || !row->has_value()) return scan;
    const SessionRow& read = **row;
    ++scan.sessions;
    scan.sum += read.seal;
    absl::Status whole = CheckSeal(read);
    if (!names.insert(read.info.session_id).second && whole.ok()) {
      whole = SessionDamaged(read.info.session_id, "two sessions have this name");
    }
    if (!whole.ok()) scan.damaged.emplace_back(whole.message());
  }
}

absl::StatusOr<SessionPage> SealedSessions::List(const std::optional<std::string>& principal,
                                                 int page_size, absl::string_view page_token,
                                                 const StoreTime& now) {
  int64_t before = INT64_MAX;
  if (!page_token.empty() && (!absl::SimpleAtoi(page_token, &before) || before < 1)) {
    return absl::InvalidArgumentError("page_token did not come from ListSessions");
  }
  const int64_t limit = int64_t{page_size} + 1;
  RowCursor<SessionRow> rows =
      principal.has_value() ? table_.PageOf(*principal, before, limit) : table_.Page(before, limit);
  SessionPage page;
  int64_t last_key = 0;
  while (true) {
    absl::StatusOr<std::optional<SessionRow>> row = rows.Next();
    const bool salvage = options_.lookup == SessionTable::Lookup::kScan && !principal.has_value();
    if (salvage && absl::IsDataLoss(row.status())) {
      absl::StatusOr<SessionPage> named = ListByIndex(page_size, before, now);
      if (!absl::IsDataLoss(named.status())) return named;
    }
    RETURN_IF_ERROR(row.status());
    if (!row->has_value()) return page;
    if (static_cast<int>(page.sessions.size()) == page_size) {
      page.next_page_token = absl::StrCat(last_key);
      return page;
    }
    SessionRow& read = **row;
    last_key = read.key;
    SetBusy(now, &read);
    absl::Status whole = CheckSeal(read);
    if (!whole.ok()) read.info = DescribeDamage(read, std::move(whole), now);
    page.sessions.push_back(std::move(read.info));
  }
}

SessionInfo SealedSessions::DescribeDamage(const SessionRow& row, absl::Status damage,
                                           const StoreTime& now) {
  std::string id = row.info.session_id;
  if (absl::IsNotFound(FindUnchecked(id, now).status())) {
    // The id in the row is damaged. The index still has the id that clients use.
    const std::string indexed = IndexedId(row.key);
    if (!indexed.empty()) {
      id = indexed;
      damage = SessionDamaged(id, "its row does not match its seal");
    }
  }
  return DamagedSession(id, damage);
}

std::string SealedSessions::IndexedId(int64_t key) {
  const absl::StatusOr<std::optional<IndexedSession>> entry = table_.IndexPage(key + 1, 1).Next();
  const bool found = entry.ok() && entry->has_value() && (*entry)->key == key;
  return found ? (*entry)->session_id : "";
}

absl::StatusOr<SessionPage> SealedSessions::ListByIndex(int page_size, int64_t before,
                                                        const StoreTime& now) {
  std::vector<IndexedSession> named;
  RowCursor<IndexedSession> index = table_.IndexPage(before, int64_t{page_size} + 1);
  while (true) {
    ASSIGN_OR_RETURN(std::optional<IndexedSession> session, index.Next());
    if (!session.has_value()) break;
    named.push_back(*std::move(session));
  }
  SessionPage page;
  if (static_cast<int>(named.size()) > page_size) {
    named.pop_back();
    page.next_page_token = absl::StrCat(named.back().key);
  }
  for (const auto& [key, session_id] : named) {
    absl::StatusOr<SessionRow> row = FindKey(key, now);
    if (row.ok()) {
      page.sessions.push_back(std::move(row->info));
      continue;
    }
    if (!absl::IsDataLoss(row.status())) return row.status();
    SessionInfo info;
    info.session_id = session_id;
    info.damage = std::string(WithSession(session_id, row.status()).message());
    page.sessions.push_back(std::move(info));
  }
  return page;
}

absl::StatusOr<std::vector<int64_t>> SealedSessions::UnchangedSince(absl::Time latest,
                                                                    int64_t limit,
                                                                    const StoreTime& now) {
  return ReadKeys(table_.UnchangedSince(latest, now.monotonic, limit));
}

absl::StatusOr<std::vector<int64_t>> SealedSessions::InUse() { return ReadKeys(table_.InUse()); }

std::vector<SessionRow> SealedSessions::Neighbors(int64_t key, const StoreTime& now) {
  constexpr int64_t kNear = 8;  // number of sessions before it and after it
  std::vector<SessionRow> neighbors;
  RowCursor<SessionRow> rows = table_.Page(key + kNear + 1, 2 * kNear + 1);
  while (true) {
    absl::StatusOr<std::optional<SessionRow>> row = rows.Next();
    if (!row.ok() || !row->has_value()) return neighbors;
    if ((*row)->key == key || !CheckSeal(**row).ok()) continue;
    SetBusy(now, &**row);
    neighbors.push_back(**std::move(row));
  }
}

absl::StatusOr<std::vector<SessionRow>> SealedSessions::AdoptAll() {
  std::vector<SessionRow> adopted;
  RowCursor<SessionRow> rows = table_.All();
  while (true) {
    ASSIGN_OR_RETURN(std::optional<SessionRow> row, rows.Next());
    if (!row.has_value()) return adopted;
    ledger_->AddSession(row->seal);
    adopted.push_back(*std::move(row));
  }
}

}  // namespace tidepool::service
