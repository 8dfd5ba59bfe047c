#include "service/store/open_sqlite_store.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "service/store/session_repairs.h"
#include "service/store/session_schema.h"

namespace tidepool::service {
namespace {

constexpr size_t kMaxNamed = 20;
// A process that is killed while it creates or upgrades the store may leave at most this many
// commits without a witness (StoreWitness).
constexpr int64_t kCommitsUnwitnessed = 2;

// Returns a fault of the indexes of `sessions`, or "". Queries by id or by principal use these
// indexes.
absl::StatusOr<std::string> IndexFault(const SqliteDb& db) {
  ASSIGN_OR_RETURN(SqliteStatement check, db.Prepare("PRAGMA integrity_check('sessions')"));
  std::string fault;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, check.Step());
    if (!more) return fault;
    if (fault.empty() && check.Text(0) != "ok") fault = std::string(check.Text(0));
  }
}

// Checks SQLite's counter of keys. The table sqlite_sequence is empty until the first session is
// created. After that, it has one row.
absl::StatusOr<bool> KeysAreWhole(const SqliteDb& db) {
  ASSIGN_OR_RETURN(SqliteStatement count,
                   db.Prepare("SELECT count(*), coalesce(sum(name = 'sessions' AND typeof(seq) = "
                              "'integer' AND seq BETWEEN (SELECT coalesce(max(key), 0) FROM "
                              "sessions) AND 9007199254740992), 0) FROM sqlite_sequence"));
  RETURN_IF_ERROR(count.Step().status());
  return count.Int(0) == count.Int(1) && count.Int(0) <= 1;
}
// The rows of a log can still exist when the row of their session is lost. The key of such a
// session must not be used again either.
constexpr char kRepairKeys[] =
    "DELETE FROM sqlite_sequence;"
    "INSERT INTO sqlite_sequence (name, seq) SELECT 'sessions', max("
    "(SELECT coalesce(max(key), 0) FROM sessions), (SELECT coalesce(max(session), 0) FROM turns), "
    "(SELECT coalesce(max(session), 0) FROM chunks))";

std::string Differs(const SessionScan& scan, const StoreLedger& ledger) {
  if (scan.sessions == ledger.sessions()) return "another program changed or replaced sessions";
  return absl::StrCat("it has ", scan.sessions, " sessions, expected ", ledger.sessions());
}

// The steps by which a store is opened.
class Opening {
 public:
  Opening(OpenedStore* store, const OpenStoreOptions& options) : store_(store), options_(options) {}

  // Looks for faults and records them in the OpenedStore. Writes nothing to the file.
  void Look(const std::optional<WitnessedCommit>& witnessed) {
    CheckWitness(witnessed, /*made=*/false);
    CheckRows();
  }

  // Does all steps. Requires: a transaction is open.
  absl::Status Run(const std::optional<WitnessedCommit>& witnessed, bool made) {
    const int64_t changes = store_->db.changes();
    CheckWitness(witnessed, made);
    RETURN_IF_ERROR(CheckSessions());
    RETURN_IF_ERROR(RepairKeys());
    RETURN_IF_ERROR(EndInterruptedTurns(&store_->sessions->sessions(), &store_->sessions->logs()));
    if (store_->db.changes() == changes && !lost_) return absl::OkStatus();
    return store_->ledger->Write();
  }

 private:
  // Records a loss in the file, so that each start reports it again.
  void Lost(absl::string_view what) {
    lost_ = true;
    store_->ledger->AddLoss(absl::StrCat(
        absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", options_.now, absl::UTCTimeZone()), ": ", what));
  }

  void CheckWitness(const std::optional<WitnessedCommit>& witnessed, bool made) {
    StoreLedger& ledger = *store_->ledger;
    if (!witnessed.has_value()) {
      if (ledger.commits() <= kCommitsUnwitnessed) return;
      store_->passing_faults.push_back(absl::StrCat(
          options_.path,
          "-commits is missing or damaged, so it is unknown whether the store lost "
          "its last transactions. If you did not copy the store without it, check the disk. It is "
          "being written again"));
      return;
    }
    if (ledger.damaged()) return ledger.CountFrom(witnessed->commits);
    if (witnessed->store_id == ledger.store_id()) {
      const int64_t lost = witnessed->commits - ledger.commits();
      if (lost <= 0) return;
      Lost(absl::StrCat("the last ", lost, " transactions are lost (it had ", witnessed->sessions,
                        " sessions then): its write-ahead log ", options_.path,
                        "-wal is damaged or missing, or was replaced by an older copy, or the "
                        "machine lost power with --durability process"));
      // The loss is recorded now, so the next start must not find it again.
      ledger.CountFrom(witnessed->commits);
    } else if (made && options_.existed && witnessed->sessions > 0) {
      Lost(absl::StrCat("all of its ", witnessed->sessions,
                        " sessions are lost: the file was emptied, or its write-ahead log ",
                        options_.path, "-wal is damaged or missing"));
    } else if (made || witnessed->sessions > 0) {
      store_->passing_faults.push_back(
          absl::StrCat("the store that was here before, with ", witnessed->sessions,
                       " sessions, is missing; if you did not remove it, restore a backup (",
                       options_.path, "-commits records it until this store is written)"));
    }
  }

  absl::Status CheckSessions() {
    const SessionScan scan = CheckRows();
    return scan.end.ok() ? RepairIndex(scan.damaged.empty()) : absl::OkStatus();
  }

  SessionScan CheckRows() {
    StoreLedger& ledger = *store_->ledger;
    SessionScan scan = store_->sessions->sessions().Scan();
    std::vector<std::string>& faults = store_->passing_faults;
    for (size_t i = 0; i < std::min(scan.damaged.size(), kMaxNamed); ++i) {
      faults.push_back(scan.damaged[i]);
    }
    if (scan.damaged.size() > kMaxNamed) {
      faults.push_back(absl::StrCat(scan.damaged.size() - kMaxNamed, " more sessions are damaged"));
    }
    if (!scan.end.ok()) {
      faults.push_back(absl::StrCat("not all of its sessions can be read: ", scan.end.message()));
      return scan;
    }
    const bool same = scan.sessions == ledger.sessions() && scan.sum == ledger.sum();
    if (!same && (ledger.damaged() || scan.damaged.empty() || scan.sessions != ledger.sessions())) {
      Lost(ledger.damaged() ? "the store's own record was damaged" : Differs(scan, ledger));
      ledger.Recount(scan.sessions, scan.sum);
    } else if (ledger.damaged()) {
      Lost("the store's own record was damaged");
    }
    return scan;
  }

  // Repairs the counter from which SQLite takes the keys of new sessions. If it is damaged, no
  // session can be created.
  absl::Status RepairKeys() {
    const absl::StatusOr<bool> whole = KeysAreWhole(store_->db);
    if (whole.ok() && *whole) return absl::OkStatus();
    if (!whole.ok() && !absl::IsDataLoss(whole.status())) return whole.status();
    const absl::Status repaired = store_->db.Execute(kRepairKeys);
    if (!repaired.ok() && !absl::IsDataLoss(repaired)) return repaired;
    lost_ = lost_ || repaired.ok();
    store_->passing_faults.push_back(
        absl::StrCat("the counter for keys of new sessions is damaged; ",
                     repaired.ok() ? "it was rebuilt from the sessions"
                                   : absl::StrCat("it cannot be rebuilt: ", repaired.message())));
    return absl::OkStatus();
  }

  absl::Status RepairIndex(bool rows_whole) {
    const absl::StatusOr<std::string> fault = IndexFault(store_->db);
    if (fault.ok() && fault->empty()) return absl::OkStatus();
    std::string line = absl::StrCat("the index of its sessions is damaged: ",
                                    fault.ok() ? *fault : std::string(fault.status().message()));
    if (rows_whole) {
      const absl::Status rebuilt = store_->db.Execute("REINDEX sessions");
      if (!rebuilt.ok() && !absl::IsDataLoss(rebuilt)) return rebuilt;
      absl::StrAppend(&line, rebuilt.ok() ? "; it was rebuilt from the sessions, which are intact"
                                          : "; it cannot be rebuilt");
      lost_ = lost_ || rebuilt.ok();
    }
    store_->passing_faults.push_back(std::move(line));
    return absl::OkStatus();
  }

  OpenedStore* store_;
  const OpenStoreOptions& options_;
  bool lost_ = false;  // the ledger has changes that must be written
};

}  // namespace

absl::StatusOr<OpenedStore> OpenTables(SqliteDb db, const StoreWitness& witness,
                                       const OpenStoreOptions& options) {
  OpenedStore store = {.db = std::move(db), .ledger = nullptr, .sessions = nullptr};
  bool made = false;
  const auto attach = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(store.ledger, StoreLedger::Open(store.db));
    using Lookup = SessionTable::Lookup;
    ASSIGN_OR_RETURN(
        store.sessions,
        SqliteSessions::Open(store.db, store.ledger.get(),
                             {.max_sessions = options.max_sessions,
                              .lookup = options.salvage ? Lookup::kScan : Lookup::kIndex}));
    return absl::OkStatus();
  };
  const auto seal = [&]() -> absl::Status {
    RETURN_IF_ERROR(StoreLedger::Make(store.db));
    RETURN_IF_ERROR(attach());
    RETURN_IF_ERROR(SealAll(&store.sessions->sessions(), &store.sessions->logs()));
    made = store.ledger->sessions() == 0;
    RETURN_IF_ERROR(store.ledger->Write());
    store.ledger->Committed();
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(BringSchemaUpToDate(store.db, seal));
  if (store.sessions == nullptr) RETURN_IF_ERROR(attach());
  if (options.salvage) {
    Opening(&store, options).Look(witness.Read());
  } else {
    RETURN_IF_ERROR(store.db.Execute("BEGIN IMMEDIATE"));
    RETURN_IF_ERROR(Opening(&store, options).Run(witness.Read(), made));
    RETURN_IF_ERROR(store.db.Execute("COMMIT"));
    store.ledger->Committed();
  }
  store.faults = store.ledger->losses();
  store.faults.insert(store.faults.end(), store.passing_faults.begin(), store.passing_faults.end());
  return store;
}

absl::StatusOr<std::vector<std::string>> VerifyStore(const OpenedStore& store) {
  ASSIGN_OR_RETURN(std::vector<std::string> faults, FindFaults(store.db));
  const std::vector<std::string> losses = store.ledger->losses();
  faults.insert(faults.end(), losses.begin(), losses.end());
  faults.insert(faults.end(), store.passing_faults.begin(), store.passing_faults.end());
  const SessionScan scan = store.sessions->sessions().Scan();
  if (!scan.end.ok()) {
    faults.emplace_back(scan.end.message());
  } else if (scan.damaged.empty() &&
             (scan.sessions != store.ledger->sessions() || scan.sum != store.ledger->sum())) {
    faults.push_back(Differs(scan, *store.ledger));
  }
  return faults;
}

}  // namespace tidepool::service
