#include "service/store/store_ledger.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/base/random_hex.h"
#include "kernels/base/status_macros.h"

namespace tidepool::service {
namespace {

constexpr size_t kMaxLosses = 20;

// Hashes the SQL of our tables and indexes. The SQL is protected by a hash, because column types
// and indexes influence what a query finds.
absl::StatusOr<Hash128> HashSchema(const SqliteDb& db) {
  ASSIGN_OR_RETURN(
      SqliteStatement rows,
      db.Prepare("SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_schema WHERE name IN "
                 "('sessions', 'turns', 'chunks', 'store', 'sessions_by_principal', "
                 "'sessions_by_update', 'running_turns') ORDER BY name"));
  RowHasher hasher("schema");
  while (true) {
    ASSIGN_OR_RETURN(const bool more, rows.Step());
    if (!more) return hasher.Finish();
    for (int column = 0; column < 4; ++column) hasher.Add(rows.Text(column));
  }
}

}  // namespace

Hash128 StoreLedger::SealOf(const State& state) {
  return RowHasher("store")
      .Add(state.store_id)
      .Add(state.commits)
      .Add(state.sessions)
      .Add(state.sum)
      .Add(state.schema)
      .Add(state.losses)
      .Finish();
}

absl::StatusOr<std::unique_ptr<StoreLedger>> StoreLedger::Open(const SqliteDb& db) {
  auto ledger = std::unique_ptr<StoreLedger>(new StoreLedger());
  ASSIGN_OR_RETURN(const Hash128 schema, HashSchema(db));
  State& state = ledger->now_;
  ASSIGN_OR_RETURN(
      SqliteStatement row,
      db.Prepare("SELECT store_id, commits, sessions, sum, schema, losses, seal FROM store "
                 "WHERE one = 1"));
  const absl::StatusOr<bool> found = row.Step();
  Hash128 seal;
  if (found.ok() && *found) {
    state = {.store_id = std::string(row.Text(0)),
             .commits = row.Int(1),
             .sessions = row.Int(2),
             .sum = Hash128::FromBytes(row.Text(3)),
             .schema = Hash128::FromBytes(row.Text(4)),
             .losses = std::string(row.Text(5))};
    if (row.HasClasses("tiibbtb")) seal = Hash128::FromBytes(row.Text(6));
    row.Reset();
  }
  ledger->damaged_ = seal != SealOf(state);
  if (!ledger->damaged_ && state.schema != schema) {
    return absl::DataLossError("its schema is damaged; restore a backup");
  }
  if (ledger->damaged_) {
    if (state.store_id.empty()) state.store_id = base::RandomHex();
    state.commits = std::max<int64_t>(state.commits, 0);
    state.schema = schema;
  }
  ASSIGN_OR_RETURN(
      ledger->write_,
      db.Prepare("INSERT INTO store (one, store_id, commits, sessions, sum, schema, losses, seal) "
                 "VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO UPDATE SET store_id = ?1, "
                 "commits = ?2, sessions = ?3, sum = ?4, schema = ?5, losses = ?6, seal = ?7"));
  ledger->Committed();
  return ledger;
}

absl::Status StoreLedger::Make(const SqliteDb& db) {
  ASSIGN_OR_RETURN(const std::unique_ptr<StoreLedger> ledger, Open(db));
  return ledger->Write();
}

std::vector<std::string> StoreLedger::losses() const {
  return absl::StrSplit(now_.losses, '\n', absl::SkipEmpty());
}

void StoreLedger::AddSession(const Hash128& seal) {
  ++now_.sessions;
  now_.sum += seal;
}

void StoreLedger::RemoveSession(const Hash128& seal) {
  --now_.sessions;
  now_.sum -= seal;
}

void StoreLedger::ReplaceSeal(const Hash128& before, const Hash128& after) {
  now_.sum -= before;
  now_.sum += after;
}

void StoreLedger::Recount(int64_t sessions, const Hash128& sum) {
  now_.sessions = sessions;
  now_.sum = sum;
}

void StoreLedger::AddLoss(absl::string_view line) {
  if (losses().size() < kMaxLosses) absl::StrAppend(&now_.losses, line, "\n");
}

void StoreLedger::CountFrom(int64_t commits) { now_.commits = std::max(now_.commits, commits); }

absl::Status StoreLedger::Write() {
  ++now_.commits;
  const std::string sum = now_.sum.Bytes();
  const std::string schema = now_.schema.Bytes();
  const std::string seal = SealOf(now_).Bytes();
  return write_.Bind(1, now_.store_id)
      .Bind(2, now_.commits)
      .Bind(3, now_.sessions)
      .BindBlob(4, sum)
      .BindBlob(5, schema)
      .Bind(6, now_.losses)
      .BindBlob(7, seal)
      .Run();
}

}  // namespace tidepool::service
