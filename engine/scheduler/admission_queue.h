// AdmissionQueue: sequences that wait for a place in the batch, and whose turn it is: the highest
// priority first; among equals a sequence of the principal that was served least (fair_share.h);
// of its sequences the earliest. Priority is strict: while higher ones keep coming, lower ones
// wait.
#ifndef TIDEPOOL_ENGINE_SCHEDULER_ADMISSION_QUEUE_H_
#define TIDEPOOL_ENGINE_SCHEDULER_ADMISSION_QUEUE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "engine/scheduler/fair_share.h"
#include "engine/scheduler/sequence.h"

namespace tidepool::engine {

// Whether `a` has a better claim to rows, places and blocks than `b`, of sequences that run.
bool GoesBefore(const Sequence& a, const Sequence& b);

// Sequences by GoesBefore.
using SequenceQueue = std::vector<std::unique_ptr<Sequence>>;
void Insert(std::unique_ptr<Sequence> sequence, SequenceQueue* queue);
// Requires: it is in the queue.
std::unique_ptr<Sequence> Take(const Sequence* sequence, SequenceQueue* queue);

// A sequence that ended before it was done.
struct EndedSequence {
  std::unique_ptr<Sequence> sequence;
  absl::Status status;  // CANCELLED, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED
};
// Takes out those that `judge`, which is asked once about each in the queue's order, gives an
// error. One pass, however many they are.
std::vector<EndedSequence> TakeFailed(absl::FunctionRef<absl::Status(Sequence*)> judge,
                                      SequenceQueue* queue);

// Engine thread only.
class AdmissionQueue {
 public:
  void Add(std::unique_ptr<Sequence> sequence);
  // Requires: it waits here.
  std::unique_ptr<Sequence> Take(const Sequence* sequence);
  std::vector<EndedSequence> TakeFailed(absl::FunctionRef<absl::Status(Sequence*)> judge);

  // Tokens that were computed for the sequence's principal.
  void ChargePrompt(const Sequence& sequence, int64_t tokens);
  void ChargeOutput(const Sequence& sequence, int64_t tokens);

  // What was computed for the sequence's principal so far. Requires: it waits here.
  int64_t Served(const Sequence& sequence) const {
    return share_.served(sequence.request.principal);
  }

  const SequenceQueue& sequences() const { return waiting_; }
  int64_t size() const { return static_cast<int64_t>(waiting_.size()); }

 private:
  SequenceQueue waiting_;
  FairShare share_;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_ADMISSION_QUEUE_H_
