// SessionTables' part over all sessions at once: at a start, for files of older versions, and for
// files that cannot be read as a whole.
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "service/store/message_json.h"
#include "service/store/session_tables.h"
#include "service/store/store_errors.h"

namespace tidepool::service {
namespace {

// All keys that a statement gives, in its first column.
absl::StatusOr<std::vector<int64_t>> Keys(SqliteStatement* statement) {
  std::vector<int64_t> keys;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, statement->Step());
    if (!more) return keys;
    keys.push_back(statement->Int(0));
  }
}

// Whether the error concerns only one session. Other errors concern the whole store.
bool IsOfOneSession(const absl::Status& status) {
  return status.ok() || absl::IsDataLoss(status) || absl::IsNotFound(status);
}

}  // namespace

SessionScan SessionTables::Scan() {
  SessionScan scan;
  absl::flat_hash_set<std::string> names;
  while (true) {
    const absl::StatusOr<bool> more = scan_.Step();
    if (!more.ok()) scan.end = more.status();
    if (!more.ok() || !*more) return scan;
    const Row row = ReadRow(scan_, StoreTime());
    ++scan.sessions;
    scan.sum += row.seal;
    absl::Status whole = CheckRow(row);
    if (!names.insert(row.info.session_id).second && whole.ok()) {
      whole = SessionDamaged(row.info.session_id, "two sessions have this name");
    }
    if (!whole.ok()) scan.damaged.emplace_back(whole.message());
  }
}

std::vector<SessionTables::Row> SessionTables::WholeNeighbors(int64_t key, const StoreTime& now) {
  constexpr int64_t kNear = 8;  // sessions before and after it
  std::vector<Row> rows;
  list_all_.Bind(2, key + kNear + 1).Bind(3, 2 * kNear + 1);
  while (true) {
    const absl::StatusOr<bool> more = list_all_.Step();
    if (!more.ok() || !*more) break;
    rows.push_back(ReadRow(list_all_, now));
  }
  std::erase_if(rows, [&](const Row& row) {
    SessionLogData log;
    return row.key == key || !CheckRow(row).ok() || !ReadLog(row, &log).ok();
  });
  return rows;
}

absl::Status SessionTables::DeleteDamaged(const Row& row, const StoreTime& now) {
  // SQLite deletes rows from a page without checking that others do not overlap with them. After a
  // page that it cannot read it deletes nothing in this transaction.
  const std::vector<Row> neighbors = WholeNeighbors(row.key, now);
  RETURN_IF_ERROR(DeleteRow(row, Rows::kAll));
  for (const Row& neighbor : neighbors) {
    SessionLogData log;
    RETURN_IF_ERROR(ReadLog(neighbor, &log));
  }
  return absl::OkStatus();
}

SessionInfo SessionTables::DescribeDamage(const Row& row, absl::Status damage,
                                          const StoreTime& now) {
  std::string id = row.info.session_id;
  if (absl::IsNotFound(FindAny(id, now).status())) {
    // The damage is in the row's id. The index still has the one that clients use.
    const absl::StatusOr<bool> found = list_index_.Bind(1, row.key + 1).Bind(2, 1).Step();
    if (found.ok() && *found && list_index_.Int(0) == row.key) {
      id = std::string(list_index_.Text(1));
      damage = SessionDamaged(id, "its row does not match its seal");
    }
    list_index_.Reset();
  }
  return DamagedSession(id, damage);
}

absl::StatusOr<SessionPage> SessionTables::ListByIndex(int page_size, int64_t before,
                                                       const StoreTime& now) {
  list_index_.Bind(1, before).Bind(2, int64_t{page_size} + 1);
  std::vector<std::pair<int64_t, std::string>> named;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, list_index_.Step());
    if (!more) break;
    named.emplace_back(list_index_.Int(0), list_index_.Text(1));
  }
  SessionPage page;
  if (static_cast<int>(named.size()) > page_size) {
    named.pop_back();
    page.next_page_token = absl::StrCat(named.back().first);
  }
  for (const auto& [key, session_id] : named) {
    absl::StatusOr<Row> row = FindKey(key, now);
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

absl::Status SessionTables::EndInterruptedTurns() {
  const absl::StatusOr<std::vector<int64_t>> keys = Keys(&leased_);
  if (absl::IsDataLoss(keys.status())) return absl::OkStatus();  // Scan says so
  RETURN_IF_ERROR(keys.status());
  const auto end = [this](int64_t key) -> absl::Status {
    ASSIGN_OR_RETURN(Row row, FindKey(key, StoreTime()));
    RETURN_IF_ERROR(UpdateRunningTurn(&row, TurnFinish::kCancelled, ""));
    row.lease_request.clear();
    row.lease_until_us = 0;
    return Save(&row);
  };
  for (const int64_t key : *keys) {
    const absl::Status status = end(key);
    if (!IsOfOneSession(status)) return status;
  }
  return absl::OkStatus();
}

absl::Status SessionTables::SealSession(Row row) {
  if (!row.classes_fit) return CheckRow(row);
  row.log_hash = LogStart(row);
  RETURN_IF_ERROR(Rechain(&row, 0));
  SessionLogData log;
  RETURN_IF_ERROR(ReadTokens(row, &log.token_ids));
  Hash128 hash = TurnsStart(row);
  for (int64_t number = 0; number < row.info.turn_count; ++number) {
    ASSIGN_OR_RETURN(const bool found, turn_at_.Bind(1, row.key).Bind(2, number).Step());
    if (!found) return SessionDamaged(row.info.session_id, "a turn is missing");
    const TurnRow turn = TurnAt();
    hash = HashOf(hash, number, turn);
    const std::string bytes = hash.Bytes();
    RETURN_IF_ERROR(hash_turn_.Bind(1, row.key).Bind(2, number).BindBlob(3, bytes).Run());
  }
  row.turns_hash = hash;
  // Nothing is sealed that does not hold together.
  RETURN_IF_ERROR(ReadTurns(row, &log.turns));
  return Save(&row);
}

absl::Status SessionTables::SealAll() {
  std::vector<Row> rows;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, scan_.Step());
    if (!more) break;
    rows.push_back(ReadRow(scan_, StoreTime()));
    ledger_->AddSession(rows.back().seal);
  }
  for (Row& row : rows) {
    const absl::Status status = SealSession(std::move(row));
    if (!IsOfOneSession(status)) return status;
  }
  return absl::OkStatus();
}

}  // namespace tidepool::service
