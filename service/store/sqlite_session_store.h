// SqliteSessionStore: sessions in one file on a local disk, for one front process.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<SessionStore> store,
//                    SqliteSessionStore::Open({.path = "sessions.db"}));
#ifndef TIDEPOOL_SERVICE_STORE_SQLITE_SESSION_STORE_H_
#define TIDEPOOL_SERVICE_STORE_SQLITE_SESSION_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"
#include "service/store/open_sqlite_store.h"
#include "service/store/session_store.h"
#include "service/store/session_tables.h"
#include "service/store/store_file.h"
#include "service/store/store_health.h"
#include "service/store/store_witness.h"

namespace tidepool::service {

// What a committed append survives.
enum class Durability : uint8_t {
  kProcess,  // the end of the process, kill -9 included (WAL, synchronous=NORMAL)
  kPower,    // the machine's power going too (synchronous=FULL)
};

enum class StoreUse : uint8_t {
  kServe,
  // Reads what is left of a store that is too damaged for kServe. Writes and repairs nothing, and
  // does not use the indexes. Calls that write fail with FAILED_PRECONDITION.
  kSalvage,
};

struct SqliteSessionStoreOptions {
  std::string path;  // ":memory:": gone with the store
  Durability durability = Durability::kProcess;
  int64_t max_bytes = 0;     // of the file; 0: what the disk holds
  int64_t max_sessions = 0;  // of one principal; 0: any number
  StoreUse use = StoreUse::kServe;
  const base::Clock* clock = &base::Clock::Real();
  // Lines for the operator: damage and losses that were found, the file gone or back. Any thread;
  // may be empty.
  std::function<void(absl::string_view)> log = {};
};

// Beside FILE and SQLite's own FILE-wal lie FILE-commits, which knows the last commit
// (StoreWitness), and FILE-reserve, the room that deletions take when the disk is full (StoreFile).
//
// Thread-safe. Calls that arrive while a transaction is written share the next one.
class SqliteSessionStore : public SessionStore {
 public:
  // Opens or creates the file, locks it until the destruction, and ends turns that a crash
  // interrupted. FAILED_PRECONDITION: another process has it open, it belongs to another program,
  // or it is not writable; DATA_LOSS: nothing in it can be read. Damage to single sessions is
  // logged.
  static absl::StatusOr<std::unique_ptr<SessionStore>> Open(
      const SqliteSessionStoreOptions& options);
  ~SqliteSessionStore() override;

  void OnHealth(StoreHealth::Listener listener) override { health_.Listen(std::move(listener)); }
  void Create(NewSession session, Done<SessionInfo> done) override;
  void Get(std::optional<std::string> principal, std::string session_id,
           Done<SessionLogData> done) override;
  void List(std::optional<std::string> principal, int page_size, std::string page_token,
            Done<SessionPage> done) override;
  void Delete(std::string principal, std::string session_id, DoneStatus done) override;
  void Count(Done<int64_t> done) override;
  void Expire(absl::Duration age, int64_t most, Done<int64_t> done) override;
  void Verify(Done<std::vector<std::string>> done) override;
  void Insert(SessionLogData session, Done<SessionInfo> done) override;
  void Replace(SessionLogData session, Done<SessionInfo> done) override;
  void BeginTurn(TurnRequest turn, Done<OpenTurn> done) override;
  void RenewLease(std::string session_id, int64_t epoch, absl::Duration lease,
                  DoneStatus done) override;
  void ReleaseLease(std::string session_id, int64_t epoch, DoneStatus done) override;
  void Append(AppendRequest append, DoneStatus done) override;

 private:
  enum class Access : uint8_t {
    kRead,
    kWrite,
    kFree,  // writes less than it frees: a full disk must not stop it
  };
  // One call: its work inside a transaction, and the delivery of its result after the commit.
  struct Job {
    Access access = Access::kWrite;
    std::function<absl::Status(SessionTables&, const StoreTime& now)> run;
    std::function<void(absl::Status)> deliver;
  };

  SqliteSessionStore(const SqliteSessionStoreOptions& options, OpenedStore opened);

  template <typename T>
  void Enqueue(Access access,
               std::function<absl::StatusOr<T>(SessionTables&, const StoreTime&)> run,
               Done<T> done);
  void EnqueueJob(Job job);
  StoreTime Now() const;
  void Run();
  // Whether the file is still there, now and then.
  void WatchFile();
  void SetFileStatus(absl::Status status);
  // `mode` as PRAGMA wal_checkpoint has it. Not into a file that others have written.
  void Checkpoint(absl::string_view mode);
  void CommitGroup(std::vector<Job>& jobs);
  // One job by itself; on a full disk one that frees room gets some.
  absl::Status CommitAlone(Job* job, std::vector<absl::Status>* results);
  // Runs the jobs in one transaction. An error: nothing of it was written.
  absl::Status TryTransaction(Job* jobs, size_t count, std::vector<absl::Status>* results);
  void WriteWitness();
  absl::Status Commit(int64_t changes);

  const SqliteSessionStoreOptions options_;
  const base::Clock* const clock_;
  const absl::Duration opened_monotonic_;
  const absl::Time opened_wall_;
  StoreHealth health_;

  // The store's thread only.
  OpenedStore opened_;
  StoreWitness witness_;
  StoreFile file_;
  absl::Status file_status_;
  absl::Duration next_look_ = absl::ZeroDuration();
  bool reserve_used_ = false;

  base::Mutex mutex_;
  base::CondVar changed_;
  std::vector<Job> queue_ TIDEPOOL_GUARDED_BY(mutex_);
  bool stopping_ TIDEPOOL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_SQLITE_SESSION_STORE_H_
