#include "service/store/sqlite_session_store.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "service/store/session_schema.h"

namespace tidepool::service {
namespace {

constexpr int64_t kPageBytes = 4096;
// The two clocks are read one after the other, and both are steered: up to this they agree.
constexpr absl::Duration kClockSlack = absl::Seconds(1);

// Errors of the file, not of the call: the whole transaction is in doubt.
bool IsStorageError(const absl::Status& status) {
  return absl::IsResourceExhausted(status) || absl::IsInternal(status) ||
         absl::IsFailedPrecondition(status);
}

absl::Status Configure(const SqliteDb& db, const SqliteSessionStoreOptions& options) {
  // Before the first access, so that WAL keeps its index in memory and the lock is never let go.
  RETURN_IF_ERROR(db.Execute("PRAGMA locking_mode = EXCLUSIVE"));
  RETURN_IF_ERROR(db.Execute(absl::StrCat("PRAGMA page_size = ", kPageBytes).c_str()));
  RETURN_IF_ERROR(db.Execute("PRAGMA journal_mode = WAL"));
  RETURN_IF_ERROR(db.Execute(options.durability == Durability::kPower
                                 ? "PRAGMA synchronous = FULL"
                                 : "PRAGMA synchronous = NORMAL"));
  // Takes the lock now rather than at the first write.
  RETURN_IF_ERROR(db.Execute("BEGIN EXCLUSIVE; COMMIT"));
  if (options.max_bytes > 0) {
    const int64_t pages = std::max<int64_t>(1, options.max_bytes / kPageBytes);
    RETURN_IF_ERROR(db.Execute(absl::StrCat("PRAGMA max_page_count = ", pages).c_str()));
  }
  return absl::OkStatus();
}

absl::Status OpenError(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat("session store '", path, "': ", status.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SessionStore>> SqliteSessionStore::Open(
    const SqliteSessionStoreOptions& options) {
  const auto open = [&options]() -> absl::StatusOr<std::unique_ptr<SessionStore>> {
    ASSIGN_OR_RETURN(SqliteDb db, SqliteDb::Open(options.path));
    RETURN_IF_ERROR(Configure(db, options));
    RETURN_IF_ERROR(BringSchemaUpToDate(db));
    ASSIGN_OR_RETURN(std::unique_ptr<SessionTables> tables,
                     SessionTables::Create(db, options.max_sessions));
    RETURN_IF_ERROR(db.Execute("BEGIN IMMEDIATE"));
    RETURN_IF_ERROR(tables->EndInterruptedTurns());
    RETURN_IF_ERROR(db.Execute("COMMIT"));
    return std::unique_ptr<SessionStore>(
        new SqliteSessionStore(std::move(db), std::move(tables), options.clock));
  };
  absl::StatusOr<std::unique_ptr<SessionStore>> store = open();
  if (!store.ok()) return OpenError(options.path, store.status());
  return store;
}

SqliteSessionStore::SqliteSessionStore(SqliteDb db, std::unique_ptr<SessionTables> tables,
                                       const base::Clock* clock)
    : db_(std::move(db)),
      tables_(std::move(tables)),
      clock_(clock),
      opened_monotonic_(clock->Monotonic()),
      opened_wall_(clock->Now()),
      thread_([this] { Run(); }) {}

SqliteSessionStore::~SqliteSessionStore() {
  {
    base::MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyOne();
  }
  thread_.join();
}

template <typename T>
void SqliteSessionStore::Enqueue(
    std::function<absl::StatusOr<T>(SessionTables&, const StoreTime&)> run, Done<T> done) {
  auto result = std::make_shared<std::optional<T>>();
  EnqueueJob({
      .run = [run = std::move(run), result](SessionTables& tables,
                                            const StoreTime& now) -> absl::Status {
        ASSIGN_OR_RETURN(*result, run(tables, now));
        return absl::OkStatus();
      },
      .deliver =
          [done = std::move(done), result](absl::Status status) {
            if (!status.ok()) return done(std::move(status));
            done(**std::move(result));
          },
  });
}

void SqliteSessionStore::EnqueueJob(Job job) {
  base::MutexLock lock(&mutex_);
  queue_.push_back(std::move(job));
  changed_.NotifyOne();
}

void SqliteSessionStore::Run() {
  while (true) {
    std::vector<Job> jobs;
    {
      base::MutexLock lock(&mutex_);
      while (queue_.empty() && !stopping_) changed_.Wait(&mutex_);
      if (queue_.empty()) return;
      jobs.swap(queue_);
    }
    CommitGroup(jobs);
  }
}

void SqliteSessionStore::CommitGroup(std::vector<Job>& jobs) {
  std::vector<absl::Status> results;
  if (TryTransaction(jobs.data(), jobs.size(), &results).ok()) {
    for (size_t i = 0; i < jobs.size(); ++i) jobs[i].deliver(std::move(results[i]));
    return;
  }
  // One of them broke the transaction of all: alone, each gets its own answer.
  for (Job& job : jobs) {
    absl::Status status = TryTransaction(&job, 1, &results);
    job.deliver(status.ok() ? std::move(results[0]) : std::move(status));
  }
}

// Steady is what the wall clock would tell if nobody had set it since the store was opened. A stamp
// is the later of the two, and is held against the earlier: whichever way the clock was set in
// between, and back again, no session looks older than it is.
StoreTime SqliteSessionStore::Now() const {
  const absl::Duration monotonic = clock_->Monotonic();
  const absl::Time wall = clock_->Now();
  const absl::Time steady = opened_wall_ + (monotonic - opened_monotonic_);
  return {.wall = std::max(wall, steady - kClockSlack),
          .monotonic = monotonic,
          .expiry = std::min(wall, steady + kClockSlack)};
}

absl::Status SqliteSessionStore::TryTransaction(Job* jobs, size_t count,
                                                std::vector<absl::Status>* results) {
  const StoreTime now = Now();
  results->clear();
  absl::Status status = db_.Execute("BEGIN IMMEDIATE");
  for (size_t i = 0; i < count && status.ok(); ++i) {
    results->push_back(jobs[i].run(*tables_, now));
    if (IsStorageError(results->back())) status = results->back();
  }
  if (status.ok()) status = db_.Execute("COMMIT");
  if (!status.ok() && db_.in_transaction()) {
    // Its own failure adds nothing: the first error is the one to tell.
    db_.Execute("ROLLBACK").IgnoreError();
  }
  return status;
}

void SqliteSessionStore::Create(NewSession session, Done<SessionInfo> done) {
  Enqueue<SessionInfo>(
      [session = std::move(session)](SessionTables& tables, const StoreTime& now) {
        return tables.Create(session, now);
      },
      std::move(done));
}

void SqliteSessionStore::Get(std::optional<std::string> principal, std::string session_id,
                             Done<SessionLogData> done) {
  Enqueue<SessionLogData>(
      [principal = std::move(principal), session_id = std::move(session_id)](SessionTables& tables,
                                                                             const StoreTime& now) {
        return tables.Get(principal, session_id, now);
      },
      std::move(done));
}

void SqliteSessionStore::List(std::optional<std::string> principal, int page_size,
                              std::string page_token, Done<SessionPage> done) {
  Enqueue<SessionPage>(
      [principal = std::move(principal), page_size, page_token = std::move(page_token)](
          SessionTables& tables, const StoreTime& now) {
        return tables.List(principal, page_size, page_token, now);
      },
      std::move(done));
}

void SqliteSessionStore::Delete(std::string principal, std::string session_id, DoneStatus done) {
  EnqueueJob({
      .run = [principal = std::move(principal), session_id = std::move(session_id)](
                 SessionTables& tables,
                 const StoreTime& now) { return tables.Delete(principal, session_id, now); },
      .deliver = std::move(done),
  });
}

void SqliteSessionStore::Count(Done<int64_t> done) {
  Enqueue<int64_t>([](SessionTables& tables, const StoreTime&) { return tables.Count(); },
                   std::move(done));
}

void SqliteSessionStore::Expire(absl::Duration age, int64_t most, Done<int64_t> done) {
  Enqueue<int64_t>([age, most](SessionTables& tables,
                               const StoreTime& now) { return tables.Expire(age, most, now); },
                   std::move(done));
}

void SqliteSessionStore::Verify(Done<std::vector<std::string>> done) {
  Enqueue<std::vector<std::string>>(
      [this](SessionTables&, const StoreTime&) { return FindFaults(db_); }, std::move(done));
}

void SqliteSessionStore::Insert(SessionLogData session, Done<SessionInfo> done) {
  Enqueue<SessionInfo>(
      [session = std::move(session)](SessionTables& tables, const StoreTime& now) {
        return tables.Insert(session, now);
      },
      std::move(done));
}

void SqliteSessionStore::Replace(SessionLogData session, Done<SessionInfo> done) {
  Enqueue<SessionInfo>(
      [session = std::move(session)](SessionTables& tables, const StoreTime& now) {
        return tables.Replace(session, now);
      },
      std::move(done));
}

void SqliteSessionStore::BeginTurn(TurnRequest turn, Done<OpenTurn> done) {
  Enqueue<OpenTurn>(
      [turn = std::move(turn)](SessionTables& tables, const StoreTime& now) {
        return tables.BeginTurn(turn, now);
      },
      std::move(done));
}

void SqliteSessionStore::RenewLease(std::string session_id, int64_t epoch, absl::Duration lease,
                                    DoneStatus done) {
  EnqueueJob({
      .run =
          [session_id = std::move(session_id), epoch, lease](SessionTables& tables,
                                                             const StoreTime& now) {
            return tables.RenewLease(session_id, epoch, now.monotonic + lease);
          },
      .deliver = std::move(done),
  });
}

void SqliteSessionStore::ReleaseLease(std::string session_id, int64_t epoch, DoneStatus done) {
  EnqueueJob({
      .run = [session_id = std::move(session_id), epoch](
                 SessionTables& tables,
                 const StoreTime&) { return tables.ReleaseLease(session_id, epoch); },
      .deliver = std::move(done),
  });
}

void SqliteSessionStore::Append(AppendRequest append, DoneStatus done) {
  EnqueueJob({
      .run = [append = std::move(append)](
                 SessionTables& tables,
                 const StoreTime& now) { return tables.Append(append, now); },
      .deliver = std::move(done),
  });
}

}  // namespace tidepool::service
