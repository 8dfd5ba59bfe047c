// SessionTransactions: runs the calls of a SQLite store in transactions, and watches its file.
#ifndef TIDEPOOL_SERVICE_STORE_SESSION_TRANSACTIONS_H_
#define TIDEPOOL_SERVICE_STORE_SESSION_TRANSACTIONS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "service/store/open_sqlite_store.h"
#include "service/store/sqlite_sessions.h"
#include "service/store/store_file.h"
#include "service/store/store_health.h"
#include "service/store/store_witness.h"

namespace tidepool::service {

// What a committed append survives.
enum class Durability : uint8_t {
  kProcess,  // the end of the process, even by kill -9 (WAL, synchronous=NORMAL)
  kPower,    // also a power loss of the machine (synchronous=FULL)
};

enum class StoreUse : uint8_t {
  kServe,
  // For a store that is too damaged for kServe. Reads what can be read. Writes and repairs nothing,
  // and does not use the indexes. Calls that would write fail with FAILED_PRECONDITION.
  kSalvage,
};

struct SqliteSessionStoreOptions {
  std::string path;  // ":memory:": there is no file
  Durability durability = Durability::kProcess;
  int64_t max_bytes = 0;     // maximum size of the file; 0: no limit
  int64_t max_sessions = 0;  // maximum for each principal; 0: no limit
  StoreUse use = StoreUse::kServe;
  const base::Clock* clock = &base::Clock::Real();
  // Gets lines for the operator, about damage, losses and a missing file. It is called on any
  // thread. It may be empty.
  std::function<void(absl::string_view)> log = {};
};

// Thread-compatible. After the construction, only the store's thread uses it.
class SessionTransactions {
 public:
  enum class Access : uint8_t {
    kRead,
    kWrite,
    kFree,  // the job frees more than it writes, so it must work on a full disk
  };
  // One call: what it does inside a transaction, and a function that gets its result after the
  // commit.
  struct Job {
    Access access = Access::kWrite;
    std::function<absl::Status(SqliteSessions&, const StoreTime& now)> run;
    std::function<void(absl::Status)> deliver;
  };

  // `health` learns whether the file can be used. It must outlive this object.
  SessionTransactions(const SqliteSessionStoreOptions& options, OpenedStore opened,
                      StoreHealth* health);

  const OpenedStore& opened() const { return opened_; }
  // Checks that the file still exists and is undamaged. Call it before each CommitGroup, and at
  // least every 500 ms.
  void WatchFile();
  // Runs all jobs in one transaction. If that fails, runs each job in its own transaction. Then
  // delivers all results.
  void CommitGroup(std::vector<Job>& jobs);
  // Writes a line about this store for the operator.
  void Log(absl::string_view line) const;

 private:
  StoreTime Now() const;
  void SetFileStatus(absl::Status status);
  // `mode` is a mode of PRAGMA wal_checkpoint. Does nothing if another process has written the
  // file.
  void Checkpoint(absl::string_view mode);
  // Runs one job in its own transaction. If the disk is full, a job that frees space may use the
  // reserve.
  absl::Status CommitAlone(Job* job, std::vector<absl::Status>* results);
  // Runs the jobs in one transaction. If it returns an error, nothing was written.
  absl::Status TryTransaction(Job* jobs, size_t count, std::vector<absl::Status>* results);
  void WriteWitness();
  absl::Status Commit(int64_t changes);

  const SqliteSessionStoreOptions options_;
  const base::Clock* const clock_;
  const absl::Duration opened_monotonic_;
  const absl::Time opened_wall_;
  StoreHealth* const health_;
  OpenedStore opened_;
  StoreWitness witness_;
  StoreFile file_;
  absl::Status file_status_;
  absl::Duration next_look_ = absl::ZeroDuration();  // when WatchFile reads the file again
  bool reserve_used_ = false;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_SESSION_TRANSACTIONS_H_
