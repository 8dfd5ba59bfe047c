#include "service/store/sqlite_session_store.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "service/store/store_errors.h"

namespace tidepool::service {
namespace {

constexpr absl::Duration kWatchEvery = absl::Milliseconds(500);

absl::Status Configure(const SqliteDb& db, const SqliteSessionStoreOptions& options) {
  // This must be set before the first access. It makes SQLite keep the lock, and keep the index of
  // the WAL in memory.
  RETURN_IF_ERROR(db.Execute("PRAGMA locking_mode = EXCLUSIVE"));
  RETURN_IF_ERROR(db.Execute(absl::StrCat("PRAGMA page_size = ", kPageBytes).c_str()));
  RETURN_IF_ERROR(db.Execute("PRAGMA journal_mode = WAL"));
  RETURN_IF_ERROR(db.Execute(options.durability == Durability::kPower
                                 ? "PRAGMA synchronous = FULL"
                                 : "PRAGMA synchronous = NORMAL"));
  // Takes the lock now. Otherwise SQLite would take the lock only at the first write.
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

template <typename T>
absl::StatusOr<T> Named(absl::string_view session_id, absl::StatusOr<T> result) {
  if (result.ok()) return result;
  return WithSession(session_id, result.status());
}

}  // namespace

absl::StatusOr<std::unique_ptr<SessionStore>> SqliteSessionStore::Open(
    const SqliteSessionStoreOptions& options) {
  const auto open = [&options]() -> absl::StatusOr<std::unique_ptr<SessionStore>> {
    std::error_code error;
    const bool existed = std::filesystem::exists(options.path, error);
    ASSIGN_OR_RETURN(SqliteDb db, SqliteDb::Open(options.path));
    RETURN_IF_ERROR(Configure(db, options));
    ASSIGN_OR_RETURN(OpenedStore opened, OpenTables(std::move(db), StoreWitness(options.path),
                                                    {.path = options.path,
                                                     .existed = existed,
                                                     .max_sessions = options.max_sessions,
                                                     .salvage = options.use == StoreUse::kSalvage,
                                                     .now = options.clock->Now()}));
    return std::unique_ptr<SessionStore>(new SqliteSessionStore(options, std::move(opened)));
  };
  absl::StatusOr<std::unique_ptr<SessionStore>> store = open();
  if (!store.ok()) return OpenError(options.path, store.status());
  return store;
}

SqliteSessionStore::SqliteSessionStore(const SqliteSessionStoreOptions& options, OpenedStore opened)
    : transactions_(options, std::move(opened), &health_), thread_([this] { Run(); }) {}

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
    Access access, std::function<absl::StatusOr<T>(SqliteSessions&, const StoreTime&)> run,
    Done<T> done) {
  auto result = std::make_shared<std::optional<T>>();
  EnqueueJob({
      .access = access,
      .run = [run = std::move(run), result](SqliteSessions& sessions,
                                            const StoreTime& now) -> absl::Status {
        ASSIGN_OR_RETURN(*result, run(sessions, now));
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
      // Wake up regularly, because the file is watched even if there are no calls.
      if (queue_.empty() && !stopping_) changed_.WaitFor(&mutex_, kWatchEvery);
      if (queue_.empty() && stopping_) return;
      jobs.swap(queue_);
    }
    transactions_.WatchFile();
    if (!jobs.empty()) transactions_.CommitGroup(jobs);
  }
}

void SqliteSessionStore::Create(NewSession session, Done<SessionInfo> done) {
  Enqueue<SessionInfo>(
      Access::kWrite,
      [session = std::move(session)](SqliteSessions& sessions, const StoreTime& now) {
        return sessions.Create(session, now);
      },
      std::move(done));
}

void SqliteSessionStore::Get(std::optional<std::string> principal, std::string session_id,
                             Done<SessionLogData> done) {
  Enqueue<SessionLogData>(
      Access::kRead,
      [principal = std::move(principal), session_id = std::move(session_id)](
          SqliteSessions& sessions, const StoreTime& now) {
        return Named(session_id, sessions.Get(principal, session_id, now));
      },
      std::move(done));
}

void SqliteSessionStore::List(std::optional<std::string> principal, int page_size,
                              std::string page_token, Done<SessionPage> done) {
  Enqueue<SessionPage>(
      Access::kRead,
      [principal = std::move(principal), page_size, page_token = std::move(page_token)](
          SqliteSessions& sessions, const StoreTime& now) {
        return sessions.sessions().List(principal, page_size, page_token, now);
      },
      std::move(done));
}

void SqliteSessionStore::Delete(std::string principal, std::string session_id, DoneStatus done) {
  EnqueueJob({
      .access = Access::kFree,
      .run =
          [principal = std::move(principal), session_id = std::move(session_id),
           rows = DeletedRows::kAll](SqliteSessions& sessions, const StoreTime& now) mutable {
            const absl::Status deleted = sessions.Delete(principal, session_id, now, rows);
            // After such an error, SQLite refuses everything else in this transaction. So the job
            // runs again, alone, and then deletes only the session's row.
            if (absl::IsDataLoss(deleted)) rows = DeletedRows::kRow;
            return WithSession(session_id, deleted);
          },
      .deliver = std::move(done),
  });
}

void SqliteSessionStore::Count(Done<int64_t> done) {
  Enqueue<int64_t>(
      Access::kRead,
      [](SqliteSessions& sessions, const StoreTime&) { return sessions.sessions().Count(); },
      std::move(done));
}

void SqliteSessionStore::Expire(absl::Duration age, int64_t most, Done<int64_t> done) {
  auto deliver = [this, age, most, done = std::move(done)](const absl::StatusOr<int64_t>& gone) {
    const std::vector<std::string> damaged = transactions_.opened().sessions->TakeExpiryFindings();
    for (const std::string& line : damaged) transactions_.Log(line);
    // The transaction was rolled back. The next one skips the sessions in which damage was found.
    if (absl::IsDataLoss(gone.status()) && !damaged.empty()) return Expire(age, most, done);
    done(gone);
  };
  Enqueue<int64_t>(
      Access::kFree,
      [age, most](SqliteSessions& sessions, const StoreTime& now) {
        return sessions.Expire(age, most, now);
      },
      std::move(deliver));
}

void SqliteSessionStore::Verify(Done<std::vector<std::string>> done) {
  Enqueue<std::vector<std::string>>(
      Access::kRead,
      [this](SqliteSessions&, const StoreTime&) { return VerifyStore(transactions_.opened()); },
      std::move(done));
}

void SqliteSessionStore::Insert(SessionLogData session, Done<SessionInfo> done) {
  Enqueue<SessionInfo>(
      Access::kWrite,
      [session = std::move(session)](SqliteSessions& sessions, const StoreTime& now) {
        return sessions.Insert(session, now);
      },
      std::move(done));
}

void SqliteSessionStore::Replace(SessionLogData session, Done<SessionInfo> done) {
  Enqueue<SessionInfo>(
      Access::kFree,
      [session = std::move(session)](SqliteSessions& sessions, const StoreTime& now) {
        return Named(session.info.session_id, sessions.Replace(session, now));
      },
      std::move(done));
}

void SqliteSessionStore::BeginTurn(TurnRequest turn, Done<OpenTurn> done) {
  Enqueue<OpenTurn>(
      Access::kWrite,
      [turn = std::move(turn)](SqliteSessions& sessions, const StoreTime& now) {
        return Named(turn.session_id, sessions.BeginTurn(turn, now));
      },
      std::move(done));
}

void SqliteSessionStore::RenewLease(std::string session_id, int64_t epoch, absl::Duration lease,
                                    DoneStatus done) {
  EnqueueJob({
      .access = Access::kWrite,
      .run =
          [session_id = std::move(session_id), epoch, lease](SqliteSessions& sessions,
                                                             const StoreTime& now) {
            return WithSession(session_id,
                               sessions.RenewLease(session_id, epoch, now.monotonic + lease));
          },
      .deliver = std::move(done),
  });
}

void SqliteSessionStore::ReleaseLease(std::string session_id, int64_t epoch, DoneStatus done) {
  EnqueueJob({
      .access = Access::kWrite,
      .run =
          [session_id = std::move(session_id), epoch](SqliteSessions& sessions, const StoreTime&) {
            return WithSession(session_id, sessions.ReleaseLease(session_id, epoch));
          },
      .deliver = std::move(done),
  });
}

void SqliteSessionStore::Append(AppendRequest append, DoneStatus done) {
  EnqueueJob({
      .access = Access::kWrite,
      .run =
          [append = std::move(append)](SqliteSessions& sessions, const StoreTime& now) {
            return WithSession(append.session_id, sessions.Append(append, now));
          },
      .deliver = std::move(done),
  });
}

}  // namespace tidepool::service
