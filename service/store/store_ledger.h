// StoreLedger: the only row of the table `store`. It contains the number of sessions, the sum of
// their seals, and the number of the last commit. If a store has lost a session, its sessions do
// not match this row. If it has lost its last commits, the number of commits is too low
// (StoreWitness).
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

// Thread-compatible. Write saves the changes in the caller's transaction. Rollback undoes them.
class StoreLedger {
 public:
  // DATA_LOSS if the file's schema is not the one that was written.
  static absl::StatusOr<std::unique_ptr<StoreLedger>> Open(const SqliteDb& db);
  // Adds the row, with a new id, to a file that has none. Requires: the tables exist.
  static absl::Status Make(const SqliteDb& db);

  const std::string& store_id() const { return now_.store_id; }
  int64_t commits() const { return now_.commits; }
  int64_t sessions() const { return now_.sessions; }
  const Hash128& sum() const { return now_.sum; }
  // Returns all losses that were ever found in this store. The oldest comes first.
  std::vector<std::string> losses() const;
  // Returns whether, at the time of Open, the row was missing or did not match its seal.
  bool damaged() const { return damaged_; }

  void AddSession(const Hash128& seal);
  void RemoveSession(const Hash128& seal);
  void ReplaceSeal(const Hash128& before, const Hash128& after);
  // Sets the values that a scan of all sessions has found.
  void Recount(int64_t sessions, const Hash128& sum);
  void AddLoss(absl::string_view line);
  // Sets the number of commits to `commits`, unless it is already larger.
  void CountFrom(int64_t commits);

  // Counts one more commit and saves the row. In each transaction that has written something, call
  // it last.
  absl::Status Write();
  // Call it after the transaction was rolled back.
  void Rollback() { now_ = written_; }
  // Call it after the transaction was committed.
  void Committed() { written_ = now_; }

 private:
  struct State {
    std::string store_id;
    int64_t commits = 0;
    int64_t sessions = 0;
    Hash128 sum;
    Hash128 schema;
    std::string losses;  // separated by line breaks
  };
  StoreLedger() = default;
  static Hash128 SealOf(const State& state);

  State now_, written_;
  bool damaged_ = false;
  SqliteStatement write_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_STORE_LEDGER_H_
