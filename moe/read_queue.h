// ReadQueue: the reads of records that are in flight, and how long a layer waits for them.
//
//   ReadQueue reads(std::move(reader), {.patience = absl::Seconds(30), .clock = clock});
//   reads.Begin({.ticket = 7, .offset = 8192, .bytes = 4096, .into = buffer, .hash = hash},
//               ReadPriority::kDemand);
//   if (reads.Await() == ReadQueue::Wait::kArrived) {
//     for (const ReadQueue::Arrival& arrival : reads.TakeArrivals()) ...
//   }
//
// A read that does not end keeps its buffer. If no read ends for `patience`, all reads in flight
// are marked as late. Await does not wait for late reads.
#ifndef TIDEPOOL_MOE_READ_QUEUE_H_
#define TIDEPOOL_MOE_READ_QUEUE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"
#include "moe/record_reader.h"

namespace tidepool::moe {

struct ReadQueueOptions {
  // If no read ends for this time, all reads in flight are marked as late.
  absl::Duration patience = absl::Seconds(30);
  const base::Clock* clock = &base::Clock::Real();
};

// Engine thread only, except for the functions that the reader's threads call.
class ReadQueue {
 public:
  // A read that has ended. The status is DATA_LOSS if the record's hash does not match or the file
  // is too short, and UNAVAILABLE if the read failed.
  struct Arrival {
    RecordRead read;
    absl::Status status;
  };
  enum class Wait : uint8_t {
    kArrived,   // reads have ended, and TakeArrivals returns them
    kNothing,   // there is no read in flight, or all of them are late
    kTimedOut,  // no read ended within patience(), so all reads in flight are marked as late
  };

  // The clock must outlive this object. The destructor waits for the reads that have begun.
  ReadQueue(std::unique_ptr<RecordReader> reader, const ReadQueueOptions& options);

  // Begins a read. Requires: no read with the same ticket is in flight.
  void Begin(const RecordRead& read, ReadPriority priority);
  // Cancels the speculative reads that have not begun, and returns them.
  std::vector<RecordRead> Withdraw();
  // Returns the reads that have ended since the last call.
  std::vector<Arrival> TakeArrivals();

  // Waits until TakeArrivals has something to return.
  Wait Await();
  // Waits for all reads, including late ones, but at most `patience`. Returns the number of reads
  // that are still in flight.
  int64_t AwaitAll(absl::Duration patience);

  bool IsLate(int64_t ticket) const { return late_.contains(ticket); }
  int64_t late() const { return static_cast<int64_t>(late_.size()); }
  // How long Await waits. After a wait that timed out, it is a tenth of the configured patience
  // until a read ends.
  absl::Duration patience() const;

  // Total time with at least one read in flight, since the start or the last reset.
  absl::Duration BusyTime() const;
  void ResetBusyTime();

 private:
  void OnRead(const RecordRead& read, const absl::Status& status);  // runs on a reader's thread
  void EndOneLocked() TIDEPOOL_REQUIRES(mutex_);
  void Forget(int64_t ticket);

  const ReadQueueOptions options_;
  absl::flat_hash_set<int64_t> reading_;  // tickets of reads whose arrivals were not taken yet
  absl::flat_hash_set<int64_t> late_;     // a subset of reading_
  bool silent_ = false;                   // true after a wait that timed out, until a read ends

  mutable base::Mutex mutex_;
  base::CondVar arrived_;
  std::vector<Arrival> arrivals_ TIDEPOOL_GUARDED_BY(mutex_);
  int64_t in_flight_ TIDEPOOL_GUARDED_BY(mutex_) = 0;
  absl::Duration busy_since_ TIDEPOOL_GUARDED_BY(mutex_);
  absl::Duration busy_time_ TIDEPOOL_GUARDED_BY(mutex_);

  // must be the last member, because its threads use the members above
  const std::unique_ptr<RecordReader> reader_;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_READ_QUEUE_H_
