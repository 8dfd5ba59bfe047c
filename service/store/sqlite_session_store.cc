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

// The two clocks are read one after the other, and both are steered: up to this they agree.
constexpr absl::Duration kClockSlack = absl::Seconds(1);
constexpr absl::Duration kLookEvery = absl::Milliseconds(500);  // at the file

// Errors of the file, not of the call: the whole transaction is in doubt.
bool IsStorageError(const absl::Status& status) {
  return absl::IsResourceExhausted(status) || absl::IsInternal(status) ||
         absl::IsDataLoss(status) || absl::IsFailedPrecondition(status);
}

// As SQLite's own default. The store does it itself, to know its own writes to the file.
constexpr int kFramesPerCheckpoint = 1000;

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
    : options_(options),
      clock_(options.clock),
      opened_monotonic_(clock_->Monotonic()),
      opened_wall_(clock_->Now()),
      opened_(std::move(opened)),
      witness_(options.path),
      file_(options.path) {
  if (options_.log) {
    for (const std::string& fault : opened_.faults) {
      options_.log(absl::StrCat("session store '", options_.path, "': ", fault));
    }
  }
  if (options_.use == StoreUse::kSalvage) {
    file_status_ = absl::FailedPreconditionError(
        absl::StrCat("session store '", options_.path, "' is damaged and can only be read"));
    thread_ = std::thread([this] { Run(); });
    return;
  }
  file_status_ = file_.Check(opened_.db);
  file_.Reserve();
  // From here on a store without its witness has lost it. One of another store stays until this one
  // is written.
  if (!witness_.Read().has_value()) WriteWitness();
  thread_ = std::thread([this] { Run(); });
}

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
    Access access, std::function<absl::StatusOr<T>(SessionTables&, const StoreTime&)> run,
    Done<T> done) {
  auto result = std::make_shared<std::optional<T>>();
  EnqueueJob({
      .access = access,
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
      // Nobody needs to call for the file to be looked at.
      if (queue_.empty() && !stopping_) changed_.WaitFor(&mutex_, kLookEvery);
      if (queue_.empty() && stopping_) return;
      jobs.swap(queue_);
    }
    WatchFile();
    if (!jobs.empty()) CommitGroup(jobs);
  }
}

void SqliteSessionStore::WatchFile() {
  if (options_.use == StoreUse::kSalvage) return;
  const absl::Duration now = base::Clock::Real().Monotonic();
  // Before each write, because it can make a truncated file as long as before.
  if (now < next_look_) return SetFileStatus(file_.CheckSizes(opened_.db.log_bytes()));
  next_look_ = now + kLookEvery;
  SetFileStatus(file_.Check(opened_.db));
}

void SqliteSessionStore::SetFileStatus(absl::Status status) {
  file_status_ = std::move(status);
  if (file_.log_is_damaged()) opened_.db.KeepLogAtClose();
  const bool changed = health_.Set(file_status_);
  if (changed && options_.log) {
    options_.log(file_status_.ok()
                     ? absl::StrCat("session store '", options_.path, "': the file is back")
                     : std::string(file_status_.message()));
  }
}

void SqliteSessionStore::Checkpoint(absl::string_view mode) {
  SetFileStatus(file_.Check(opened_.db));
  if (!file_status_.ok()) return;
  opened_.db.Checkpoint(mode).IgnoreError();
  file_.Written(opened_.db);
}

void SqliteSessionStore::CommitGroup(std::vector<Job>& jobs) {
  if (!file_status_.ok()) {
    const auto refused = std::stable_partition(
        jobs.begin(), jobs.end(), [](const Job& job) { return job.access == Access::kRead; });
    std::for_each(refused, jobs.end(), [this](Job& job) { job.deliver(file_status_); });
    jobs.erase(refused, jobs.end());
  }
  std::vector<absl::Status> results;
  if (TryTransaction(jobs.data(), jobs.size(), &results).ok()) {
    for (size_t i = 0; i < jobs.size(); ++i) jobs[i].deliver(std::move(results[i]));
    return;
  }
  // One of them broke the transaction of all: alone, each gets its own answer.
  for (Job& job : jobs) {
    absl::Status status = CommitAlone(&job, &results);
    job.deliver(status.ok() ? std::move(results[0]) : std::move(status));
  }
}

absl::Status SqliteSessionStore::CommitAlone(Job* job, std::vector<absl::Status>* results) {
  absl::Status status = TryTransaction(job, 1, results);
  const auto stuck = [&] {
    return absl::IsResourceExhausted(status) && job->access == Access::kFree;
  };
  if (stuck()) {
    // The log begins again at its start, where it has room, if the file can take what it holds.
    Checkpoint("RESTART");
    status = TryTransaction(job, 1, results);
  }
  if (stuck() && file_.ReleaseReserve()) {
    reserve_used_ = true;
    status = TryTransaction(job, 1, results);
  }
  return status;
}

// `steady` is the time of the wall clock as if it had not been set since the store was opened. A
// stamp uses the later of the two, and its age is computed from the earlier. So no session looks
// older than it is, however the clock was set.
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
  const int64_t changes = opened_.db.changes();
  results->clear();
  absl::Status status = opened_.db.Execute("BEGIN IMMEDIATE");
  for (size_t i = 0; i < count && status.ok(); ++i) {
    results->push_back(jobs[i].run(*opened_.tables, now));
    if (IsStorageError(results->back())) status = results->back();
  }
  if (status.ok()) status = Commit(changes);
  if (status.ok()) return status;
  opened_.ledger->Rollback();
  // Its own failure adds nothing: the first error is the one to tell.
  if (opened_.db.in_transaction()) opened_.db.Execute("ROLLBACK").IgnoreError();
  return status;
}

absl::Status SqliteSessionStore::Commit(int64_t changes) {
  StoreLedger& ledger = *opened_.ledger;
  const bool wrote = opened_.db.changes() != changes;
  // If a page could not be read, SQLite fails a COMMIT even if nothing was written.
  if (!wrote) return opened_.db.Execute("ROLLBACK");
  RETURN_IF_ERROR(ledger.Write());
  RETURN_IF_ERROR(opened_.db.Execute("COMMIT"));
  ledger.Committed();
  // Before the results of the commit are delivered.
  WriteWitness();
  if (opened_.db.log_frames() >= kFramesPerCheckpoint) Checkpoint("PASSIVE");
  if (std::exchange(reserve_used_, false)) {
    // What was freed goes back to the disk, and the reserve takes its place.
    Checkpoint("TRUNCATE");
    file_.Reserve();
  }
  return absl::OkStatus();
}

void SqliteSessionStore::WriteWitness() {
  const StoreLedger& ledger = *opened_.ledger;
  witness_.Write(
      {.store_id = ledger.store_id(), .commits = ledger.commits(), .sessions = ledger.sessions()});
}

void SqliteSessionStore::Create(NewSession session, Done<SessionInfo> done) {
  Enqueue<SessionInfo>(
      Access::kWrite,
      [session = std::move(session)](SessionTables& tables, const StoreTime& now) {
        return tables.Create(session, now);
      },
      std::move(done));
}

void SqliteSessionStore::Get(std::optional<std::string> principal, std::string session_id,
                             Done<SessionLogData> done) {
  Enqueue<SessionLogData>(
      Access::kRead,
      [principal = std::move(principal), session_id = std::move(session_id)](SessionTables& tables,
                                                                             const StoreTime& now) {
        return Named(session_id, tables.Get(principal, session_id, now));
      },
      std::move(done));
}

void SqliteSessionStore::List(std::optional<std::string> principal, int page_size,
                              std::string page_token, Done<SessionPage> done) {
  Enqueue<SessionPage>(
      Access::kRead,
      [principal = std::move(principal), page_size, page_token = std::move(page_token)](
          SessionTables& tables, const StoreTime& now) {
        return tables.List(principal, page_size, page_token, now);
      },
      std::move(done));
}

void SqliteSessionStore::Delete(std::string principal, std::string session_id, DoneStatus done) {
  EnqueueJob({
      .access = Access::kFree,
      .run =
          [principal = std::move(principal), session_id = std::move(session_id),
           rows = SessionTables::Rows::kAll](SessionTables& tables, const StoreTime& now) mutable {
            const absl::Status deleted = tables.Delete(principal, session_id, now, rows);
            // SQLite lets a transaction do nothing more after such an error: the next one, in which
            // this runs by itself, leaves the rows of its log alone.
            if (absl::IsDataLoss(deleted)) rows = SessionTables::Rows::kSession;
            return WithSession(session_id, deleted);
          },
      .deliver = std::move(done),
  });
}

void SqliteSessionStore::Count(Done<int64_t> done) {
  Enqueue<int64_t>(
      Access::kRead, [](SessionTables& tables, const StoreTime&) { return tables.Count(); },
      std::move(done));
}

void SqliteSessionStore::Expire(absl::Duration age, int64_t most, Done<int64_t> done) {
  Enqueue<int64_t>(
      Access::kFree,
      [age, most](SessionTables& tables, const StoreTime& now) {
        return tables.Expire(age, most, now);
      },
      std::move(done));
}

void SqliteSessionStore::Verify(Done<std::vector<std::string>> done) {
  Enqueue<std::vector<std::string>>(
      Access::kRead, [this](SessionTables&, const StoreTime&) { return VerifyStore(opened_); },
      std::move(done));
}

void SqliteSessionStore::Insert(SessionLogData session, Done<SessionInfo> done) {
  Enqueue<SessionInfo>(
      Access::kWrite,
      [session = std::move(session)](SessionTables& tables, const StoreTime& now) {
        return tables.Insert(session, now);
      },
      std::move(done));
}

void SqliteSessionStore::Replace(SessionLogData session, Done<SessionInfo> done) {
  Enqueue<SessionInfo>(
      Access::kFree,
      [session = std::move(session)](SessionTables& tables, const StoreTime& now) {
        return Named(session.info.session_id, tables.Replace(session, now));
      },
      std::move(done));
}

void SqliteSessionStore::BeginTurn(TurnRequest turn, Done<OpenTurn> done) {
  Enqueue<OpenTurn>(
      Access::kWrite,
      [turn = std::move(turn)](SessionTables& tables, const StoreTime& now) {
        return Named(turn.session_id, tables.BeginTurn(turn, now));
      },
      std::move(done));
}

void SqliteSessionStore::RenewLease(std::string session_id, int64_t epoch, absl::Duration lease,
                                    DoneStatus done) {
  EnqueueJob({
      .access = Access::kWrite,
      .run =
          [session_id = std::move(session_id), epoch, lease](SessionTables& tables,
                                                             const StoreTime& now) {
            return WithSession(session_id,
                               tables.RenewLease(session_id, epoch, now.monotonic + lease));
          },
      .deliver = std::move(done),
  });
}

void SqliteSessionStore::ReleaseLease(std::string session_id, int64_t epoch, DoneStatus done) {
  EnqueueJob({
      .access = Access::kWrite,
      .run =
          [session_id = std::move(session_id), epoch](SessionTables& tables, const StoreTime&) {
            return WithSession(session_id, tables.ReleaseLease(session_id, epoch));
          },
      .deliver = std::move(done),
  });
}

void SqliteSessionStore::Append(AppendRequest append, DoneStatus done) {
  EnqueueJob({
      .access = Access::kWrite,
      .run =
          [append = std::move(append)](SessionTables& tables, const StoreTime& now) {
            return WithSession(append.session_id, tables.Append(append, now));
          },
      .deliver = std::move(done),
  });
}

}  // namespace tidepool::service
