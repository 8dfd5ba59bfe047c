// SqliteSessionStore: stores sessions in one file on a local disk, for one front process.
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
#include "absl/time/time.h"
#include "kernels/base/mutex.h"
#include "service/store/open_sqlite_store.h"
#include "service/store/session_store.h"
#include "service/store/session_transactions.h"
#include "service/store/sqlite_sessions.h"
#include "service/store/store_health.h"

namespace tidepool::service {

// A store FILE uses three more files in the same directory. FILE-wal is SQLite's write-ahead log.
// FILE-commits contains the last commit (StoreWitness). FILE-reserve is space for deletions on a
// full disk (StoreFile).
//
// Thread-safe. Calls that arrive while a transaction runs share the next transaction.
class SqliteSessionStore : public SessionStore {
 public:
  // Opens or creates the file, and ends turns that a crash has interrupted. The file is locked
  // until the store is destroyed. FAILED_PRECONDITION if another process has the file open, if it
  // belongs to another program, or if it is not writable. DATA_LOSS if nothing in it can be read.
  // If only single sessions are damaged, this is logged.
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
  using Access = SessionTransactions::Access;
  using Job = SessionTransactions::Job;

  SqliteSessionStore(const SqliteSessionStoreOptions& options, OpenedStore opened);

  template <typename T>
  void Enqueue(Access access,
               std::function<absl::StatusOr<T>(SqliteSessions&, const StoreTime&)> run,
               Done<T> done);
  void EnqueueJob(Job job);
  void Run();
  StoreHealth health_;
  SessionTransactions transactions_;  // used on the store's thread only

  base::Mutex mutex_;
  base::CondVar changed_;
  std::vector<Job> queue_ TIDEPOOL_GUARDED_BY(mutex_);
  bool stopping_ TIDEPOOL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_SQLITE_SESSION_STORE_H_
