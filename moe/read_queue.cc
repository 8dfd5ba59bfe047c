#include "moe/read_queue.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"
#include "moe/expert_record.h"

namespace tidepool::moe {

ReadQueue::ReadQueue(std::unique_ptr<RecordReader> reader, const ReadQueueOptions& options)
    : options_(options), reader_(std::move(reader)) {
  reader_->Start(
      [this](const RecordRead& read, const absl::Status& status) { OnRead(read, status); });
}

// Computes the hash on the reader's thread, so that the engine thread does not have to.
void ReadQueue::OnRead(const RecordRead& read, const absl::Status& status) {
  Arrival arrival = {read, status};
  if (status.ok() && RecordHash(read.into, read.bytes) != read.hash) {
    arrival.status = absl::DataLossError("is damaged: its checksum does not match");
  }
  base::MutexLock lock(&mutex_);
  EndOneLocked();
  arrivals_.push_back(std::move(arrival));
  arrived_.NotifyAll();
}

void ReadQueue::EndOneLocked() {
  if (--in_flight_ == 0) busy_time_ += options_.clock->Monotonic() - busy_since_;
}

void ReadQueue::Begin(const RecordRead& read, ReadPriority priority) {
  CHECK(reading_.insert(read.ticket).second) << "ticket " << read.ticket << " is being read";
  {
    base::MutexLock lock(&mutex_);
    if (in_flight_++ == 0) busy_since_ = options_.clock->Monotonic();
  }
  reader_->Read(read, priority);
}

std::vector<RecordRead> ReadQueue::Withdraw() {
  std::vector<RecordRead> withdrawn = reader_->Withdraw();
  for (const RecordRead& read : withdrawn) {
    Forget(read.ticket);
    base::MutexLock lock(&mutex_);
    EndOneLocked();
  }
  return withdrawn;
}

std::vector<ReadQueue::Arrival> ReadQueue::TakeArrivals() {
  std::vector<Arrival> arrivals;
  {
    base::MutexLock lock(&mutex_);
    arrivals.swap(arrivals_);
  }
  for (const Arrival& arrival : arrivals) Forget(arrival.read.ticket);
  if (!arrivals.empty()) silent_ = false;
  return arrivals;
}

void ReadQueue::Forget(int64_t ticket) {
  reading_.erase(ticket);
  late_.erase(ticket);
}

ReadQueue::Wait ReadQueue::Await() {
  // Check the clock repeatedly, because a test's ManualClock does not wake this thread.
  constexpr absl::Duration kLook = absl::Milliseconds(20);
  {
    base::MutexLock lock(&mutex_);
    const absl::Duration until = options_.clock->Monotonic() + patience();
    while (arrivals_.empty()) {
      if (in_flight_ == late()) return Wait::kNothing;
      const absl::Duration left = until - options_.clock->Monotonic();
      if (left <= absl::ZeroDuration()) break;
      arrived_.WaitFor(&mutex_, std::min(left, kLook));
    }
    if (!arrivals_.empty()) return Wait::kArrived;
  }
  silent_ = true;
  late_ = reading_;
  return Wait::kTimedOut;
}

int64_t ReadQueue::AwaitAll(absl::Duration patience) {
  const absl::Duration until = options_.clock->Monotonic() + patience;
  base::MutexLock lock(&mutex_);
  while (in_flight_ > 0) {
    const absl::Duration left = until - options_.clock->Monotonic();
    if (left <= absl::ZeroDuration()) break;
    arrived_.WaitFor(&mutex_, left);
  }
  return in_flight_;
}

absl::Duration ReadQueue::patience() const {
  return silent_ ? options_.patience / 10 : options_.patience;
}

absl::Duration ReadQueue::BusyTime() const {
  base::MutexLock lock(&mutex_);
  absl::Duration busy = busy_time_;
  if (in_flight_ > 0) busy += options_.clock->Monotonic() - busy_since_;
  return busy;
}

void ReadQueue::ResetBusyTime() {
  base::MutexLock lock(&mutex_);
  busy_time_ = absl::ZeroDuration();
}

}  // namespace tidepool::moe
