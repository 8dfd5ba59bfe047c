// StoreLedger: the one row about the whole SQLite store: how many sessions it has, the sum of their
// seals, and the number of the last commit. A session that vanished, and a store that went back in
// time, differ from it.
#ifndef TIDEPOOL_SERVICE_STORE_STORE_LEDGER_H_
#define TIDEPOOL_SERVICE_STORE_STORE_LEDGER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "service/store/row_hash.h"
#include "service/store/sqlite_db.h"

namespace tidepool::service {

// Thread-compatible. Changes are written by Write, in the caller's transaction, or taken back by
// Rollback.
class StoreLedger {
 public:
  // DATA_LOSS: the schema is not the one that was written.
  static absl::StatusOr<std::unique_ptr<StoreLedger>> Open(const SqliteDb& db);
  // Puts the row into a file that has none, with a new id. Requires: the schema is there.
  static absl::Status Make(const SqliteDb& db);

  const std::string& store_id() const { return now_.store_id; }
  int64_t commits() const { return now_.commits; }
  int64_t sessions() const { return now_.sessions; }
  const Hash128& sum() const { return now_.sum; }
  // What was found lost in this store so far, oldest first.
  std::vector<std::string> losses() const;
  // The row did not match its own seal, or was missing.
  bool damaged() const { return damaged_; }

  void AddSession(const Hash128& seal);
  void RemoveSession(const Hash128& seal);
  void ReplaceSeal(const Hash128& before, const Hash128& after);
  // What a scan of all sessions found.
  void Recount(int64_t sessions, const Hash128& sum);
  void AddLoss(absl::string_view line);
  // Commits count on from here, if that is more than they are.
  void CountFrom(int64_t commits);

  // One commit more. Call it last in each transaction that wrote something.
  absl::Status Write();
  // The transaction was rolled back.
  void Rollback() { now_ = written_; }
  // It was committed.
  void Committed() { written_ = now_; }

 private:
  struct State {
    std::string store_id;
    int64_t commits = 0;
    int64_t sessions = 0;
    Hash128 sum;
    Hash128 schema;
    std::string losses;  // lines
  };
  StoreLedger() = default;
  static Hash128 SealOf(const State& state);

  State now_, written_;
  bool damaged_ = false;
  SqliteStatement write_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_STORE_LEDGER_H_
