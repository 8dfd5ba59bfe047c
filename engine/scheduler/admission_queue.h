// AdmissionQueue: the waiting sequences in order. The highest priority comes first. Among equal
// priorities, a sequence of the principal that was served least comes first (fair_share.h). Among
// the sequences of a principal, the earliest comes first. Priority is strict: sequences wait as
// long as sequences with a higher priority keep arriving.
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

// Returns whether running sequence `a` gets rows, places and blocks before `b`.
bool GoesBefore(const Sequence& a, const Sequence& b);

// Sequences, sorted by GoesBefore.
using SequenceQueue = std::vector<std::unique_ptr<Sequence>>;
void Insert(std::unique_ptr<Sequence> sequence, SequenceQueue* queue);
// Removes the sequence from the queue. Requires: it is in the queue.
std::unique_ptr<Sequence> Take(const Sequence* sequence, SequenceQueue* queue);

// A sequence that ended with an error, and the error.
struct EndedSequence {
  std::unique_ptr<Sequence> sequence;
  absl::Status status;  // CANCELLED, DEADLINE_EXCEEDED or RESOURCE_EXHAUSTED
};
// Removes the sequences for which `judge` returns an error. Calls `judge` once for each sequence,
// in the order of the queue.
std::vector<EndedSequence> TakeFailed(absl::FunctionRef<absl::Status(Sequence*)> judge,
                                      SequenceQueue* queue);

// Engine thread only.
class AdmissionQueue {
 public:
  void Add(std::unique_ptr<Sequence> sequence);
  // Requires: the sequence is in this queue.
  std::unique_ptr<Sequence> Take(const Sequence* sequence);
  std::vector<EndedSequence> TakeFailed(absl::FunctionRef<absl::Status(Sequence*)> judge);

  // Both charge computed tokens to the sequence's principal.
  void ChargePrompt(const Sequence& sequence, int64_t tokens);
  void ChargeOutput(const Sequence& sequence, int64_t tokens);

  // Returns how much was computed for the sequence's principal so far. Requires: the sequence is in
  // this queue.
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
