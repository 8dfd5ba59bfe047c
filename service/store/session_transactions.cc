#include "service/store/session_transactions.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace tidepool::service {
namespace {

// If the two clocks differ by less than this, they count as equal. They are never exactly equal,
// because they are not read at the same moment and both are adjusted.
constexpr absl::Duration kClockSlack = absl::Seconds(1);
// time between two reads of the file
constexpr absl::Duration kLookEvery = absl::Milliseconds(500);

// Returns whether the error concerns the file and not only the call. If so, the transaction is
// rolled back.
bool IsStorageError(const absl::Status& status) {
  return absl::IsResourceExhausted(status) || absl::IsInternal(status) ||
         absl::IsDataLoss(status) || absl::IsFailedPrecondition(status);
}

// This is SQLite's own default. The store runs checkpoints itself, so that it knows when the file
// changes.
constexpr int kFramesPerCheckpoint = 1000;

}  // namespace

SessionTransactions::SessionTransactions(const SqliteSessionStoreOptions& options,
                                         OpenedStore opened, StoreHealth* health)
    : options_(options),
      clock_(options.clock),
      opened_monotonic_(clock_->Monotonic()),
      opened_wall_(clock_->Now()),
      health_(health),
      opened_(std::move(opened)),
      witness_(options.path),
      file_(options.path) {
  for (const std::string& fault : opened_.faults) Log(fault);
  if (options_.use == StoreUse::kSalvage) {
    file_status_ = absl::FailedPreconditionError(
        absl::StrCat("session store '", options_.path, "' is damaged and can only be read"));
    return;
  }
  file_status_ = file_.Check(opened_.db);
  file_.Reserve();
  // A witness file (StoreWitness) exists from now on, so if it is missing later, it was lost. If
  // there is already a witness of another store, it stays until this store is written.
  if (!witness_.Read().has_value()) WriteWitness();
}

void SessionTransactions::Log(absl::string_view line) const {
  if (options_.log) options_.log(absl::StrCat("session store '", options_.path, "': ", line));
}

void SessionTransactions::WatchFile() {
  if (options_.use == StoreUse::kSalvage) return;
  const absl::Duration now = base::Clock::Real().Monotonic();
  // Check before each write, because a write could give a truncated file its old size again.
  if (now < next_look_) return SetFileStatus(file_.CheckSizes(opened_.db.log_bytes()));
  next_look_ = now + kLookEvery;
  SetFileStatus(file_.Check(opened_.db));
}

void SessionTransactions::SetFileStatus(absl::Status status) {
  file_status_ = std::move(status);
  if (file_.log_is_damaged()) opened_.db.KeepLogAtClose();
  const bool changed = health_->Set(file_status_);
  if (changed && options_.log) {
    options_.log(file_status_.ok()
                     ? absl::StrCat("session store '", options_.path, "': the file is back")
                     : std::string(file_status_.message()));
  }
}

void SessionTransactions::Checkpoint(absl::string_view mode) {
  SetFileStatus(file_.Check(opened_.db));
  if (!file_status_.ok()) return;
  opened_.db.Checkpoint(mode).IgnoreError();
  file_.Written(opened_.db);
}

void SessionTransactions::CommitGroup(std::vector<Job>& jobs) {
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
  // One job has made the shared transaction fail. Run each job alone, so that each gets its own
  // result.
  for (Job& job : jobs) {
    absl::Status status = CommitAlone(&job, &results);
    job.deliver(status.ok() ? std::move(results[0]) : std::move(status));
  }
}

absl::Status SessionTransactions::CommitAlone(Job* job, std::vector<absl::Status>* results) {
  absl::Status status = TryTransaction(job, 1, results);
  const auto stuck = [&] {
    return absl::IsResourceExhausted(status) && job->access == Access::kFree;
  };
  if (stuck()) {
    // After this checkpoint, SQLite writes the log from its beginning, where the file already has
    // space.
    Checkpoint("RESTART");
    status = TryTransaction(job, 1, results);
  }
  if (stuck() && file_.ReleaseReserve()) {
    reserve_used_ = true;
    status = TryTransaction(job, 1, results);
  }
  return status;
}

// `steady` is the time that the wall clock would show if nobody had set it since the store was
// opened. Time stamps use the later one of the two. Their age is computed with the earlier one. So
// a session never looks older than it is, even if the clock was set.
StoreTime SessionTransactions::Now() const {
  const absl::Duration monotonic = clock_->Monotonic();
  const absl::Time wall = clock_->Now();
  const absl::Time steady = opened_wall_ + (monotonic - opened_monotonic_);
  return {.wall = std::max(wall, steady - kClockSlack),
          .monotonic = monotonic,
          .expiry = std::min(wall, steady + kClockSlack)};
}

absl::Status SessionTransactions::TryTransaction(Job* jobs, size_t count,
                                                 std::vector<absl::Status>* results) {
  const StoreTime now = Now();
  const int64_t changes = opened_.db.changes();
  results->clear();
  absl::Status status = opened_.db.Execute("BEGIN IMMEDIATE");
  for (size_t i = 0; i < count && status.ok(); ++i) {
    results->push_back(jobs[i].run(*opened_.sessions, now));
    if (IsStorageError(results->back())) status = results->back();
  }
  if (status.ok()) status = Commit(changes);
  if (status.ok()) return status;
  opened_.ledger->Rollback();
  // Report the first error. An error of ROLLBACK would hide this error.
  if (opened_.db.in_transaction()) opened_.db.Execute("ROLLBACK").IgnoreError();
  return status;
}

absl::Status SessionTransactions::Commit(int64_t changes) {
  StoreLedger& ledger = *opened_.ledger;
  const bool wrote = opened_.db.changes() != changes;
  // If nothing was written, roll back, because SQLite refuses a COMMIT if a page could not be read,
  // even without writes.
  if (!wrote) return opened_.db.Execute("ROLLBACK");
  RETURN_IF_ERROR(ledger.Write());
  RETURN_IF_ERROR(opened_.db.Execute("COMMIT"));
  ledger.Committed();
  // The witness must be written before the results of the commit are delivered.
  WriteWitness();
  if (opened_.db.log_frames() >= kFramesPerCheckpoint) Checkpoint("PASSIVE");
  if (std::exchange(reserve_used_, false)) {
    // Give the freed space back to the disk, and reserve space again.
    Checkpoint("TRUNCATE");
    file_.Reserve();
  }
  return absl::OkStatus();
}

void SessionTransactions::WriteWitness() {
  const StoreLedger& ledger = *opened_.ledger;
  witness_.Write(
      {.store_id = ledger.store_id(), .commits = ledger.commits(), .sessions = ledger.sessions()});
}

}  // namespace tidepool::service
