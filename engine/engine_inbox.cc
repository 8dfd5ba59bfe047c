#include "engine/engine_inbox.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/clock.h"
#include "kernels/base/retry_after.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {
namespace {

// Maximum number of tasks that wait for the end of a step.
constexpr size_t kMaxTasks = 64;

// Returns the time in which a part (kPart) of a full queue is served at the current rate. After
// this time, there is room for clients that were refused and for new ones.
absl::Duration RetryWait(const EngineStats& stats, int64_t capacity) {
  constexpr double kPart = 1.0 / 8;
  if (stats.admissions_per_second <= 0) return base::kUsualRetryAfter;
  const double seconds = kPart * static_cast<double>(capacity) / stats.admissions_per_second;
  return std::clamp(absl::Seconds(seconds), absl::Milliseconds(100), absl::Minutes(1));
}

}  // namespace

absl::Status EngineInbox::CheckOpenLocked(const std::string& principal) const {
  if (stop_ || !accepting_) return absl::UnavailableError("the engine accepts no new work");
  absl::Status room = places_.Check(principal);
  if (room.ok()) return room;
  return base::WithRetryAfter(std::move(room), RetryWait(stats_, capacity_));
}

void EngineInbox::SetCapacity(int64_t capacity) {
  places_.SetPlaces(capacity);
  base::MutexLock lock(&mutex_);
  capacity_ = capacity;
}

absl::Status EngineInbox::CheckOpen(const std::string& principal) const {
  base::MutexLock lock(&mutex_);
  return CheckOpenLocked(principal);
}

absl::Status EngineInbox::Submit(std::unique_ptr<Sequence> sequence) {
  base::MutexLock lock(&mutex_);
  const std::string& principal = sequence->request.principal;
  RETURN_IF_ERROR(CheckOpenLocked(principal));
  ASSIGN_OR_RETURN(sequence->place, places_.Take(principal));
  ++live_;
  incoming_.sequences.push_back(std::move(sequence));
  work_.NotifyAll();
  return absl::OkStatus();
}

void EngineInbox::Wake() {
  base::MutexLock lock(&mutex_);
  awake_ = true;
  work_.NotifyAll();
}

absl::Status EngineInbox::Post(Task task) {
  base::MutexLock lock(&mutex_);
  if (stop_) return absl::UnavailableError("the engine has stopped");
  if (incoming_.tasks.size() >= kMaxTasks) {
    return base::WithRetryAfter(
        absl::ResourceExhaustedError(absl::StrCat(
            incoming_.tasks.size(), " calls are waiting for the current step to end; retry later")),
        base::kUsualRetryAfter);
  }
  incoming_.tasks.push_back(std::move(task));
  work_.NotifyAll();
  return absl::OkStatus();
}

void EngineInbox::StopAccepting() {
  base::MutexLock lock(&mutex_);
  accepting_ = false;
}

bool EngineInbox::WaitIdle(absl::Duration timeout) {
  const base::Clock& clock = base::Clock::Real();
  const absl::Duration deadline = clock.Monotonic() + timeout;
  base::MutexLock lock(&mutex_);
  while (live_ > 0 || delivering_) {
    const absl::Duration left = deadline - clock.Monotonic();
    if (left <= absl::ZeroDuration()) return false;
    idle_.WaitFor(&mutex_, std::min(left, absl::Hours(1)));
  }
  return true;
}

void EngineInbox::Stop() {
  base::MutexLock lock(&mutex_);
  stop_ = true;
  work_.NotifyAll();
}

EngineStats EngineInbox::Stats() const {
  base::MutexLock lock(&mutex_);
  EngineStats stats = stats_;
  stats.sequences_waiting += static_cast<int64_t>(incoming_.sequences.size());
  stats.places = capacity_;
  stats.room_wait = RetryWait(stats, capacity_);
  stats.work_pending =
      stats.work_pending || !resting_ || !incoming_.sequences.empty() || !incoming_.tasks.empty();
  for (const auto& sequence : incoming_.sequences) {
    stats.queued_prompt_tokens += static_cast<int64_t>(sequence->tokens.size());
  }
  return stats;
}

std::vector<uint64_t> EngineInbox::PrefixDigests() const {
  base::MutexLock lock(&mutex_);
  return prefixes_;
}

bool EngineInbox::TakeWork(absl::Duration patience, Work* work) {
  base::MutexLock lock(&mutex_);
  bool patient = patience > absl::ZeroDuration();
  resting_ = true;
  while (!stop_ && !awake_ && incoming_.sequences.empty() && incoming_.tasks.empty() && patient) {
    if (patience == absl::InfiniteDuration()) {
      work_.Wait(&mutex_);
    } else {
      patient = work_.WaitFor(&mutex_, std::min(patience, absl::Hours(1)));
    }
  }
  resting_ = false;
  awake_ = false;
  std::swap(*work, incoming_);
  return !stop_;
}

void EngineInbox::PublishStats(const EngineStats& stats) {
  base::MutexLock lock(&mutex_);
  stats_ = stats;
}

void EngineInbox::Retire(int64_t count) {
  base::MutexLock lock(&mutex_);
  live_ -= count;
  delivering_ = true;
}

void EngineInbox::PublishPrefixes(std::vector<uint64_t> digests) {
  base::MutexLock lock(&mutex_);
  prefixes_ = std::move(digests);
}

void EngineInbox::Delivered() {
  base::MutexLock lock(&mutex_);
  delivering_ = false;
  idle_.NotifyAll();
}

}  // namespace tidepool::engine
