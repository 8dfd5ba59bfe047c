// AdmissionTurns and QueueAheadCounter: helpers that iterate over an AdmissionQueue during one
// plan.
#ifndef TIDEPOOL_ENGINE_SCHEDULER_ADMISSION_TURNS_H_
#define TIDEPOOL_ENGINE_SCHEDULER_ADMISSION_TURNS_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "engine/scheduler/admission_queue.h"
#include "engine/scheduler/sequence.h"

namespace tidepool::engine {

// Engine thread only. Iterates during one plan over the waiting sequences with credit, in the order
// of AdmissionQueue. For n sequences, it takes O(n log n) time.
class AdmissionTurns {
 public:
  // While this object exists, only the current sequence may leave the queue, and only its principal
  // may be charged. A new sequence gets no turn, unless its priority is lower than the priorities
  // of all sequences that had a turn.
  explicit AdmissionTurns(const AdmissionQueue* queue) : queue_(queue) {}

  // Returns the sequence whose turn it is, or null if none is left.
  Sequence* Next();
  // Ends the current turn. The sequence may have left the queue before. Requires: there is a
  // current turn.
  void Pass();
  // Ends the turn of a sequence that cannot begin yet, but does not block the sequences after it.
  // After kMaxPassedOver such sequences, the rest of their line gets no turn. (A line has the
  // sequences of one principal with the same priority.)
  static constexpr int kMaxPassedOver = 16;
  void PassOver();
  // Ends the turn of a sequence that cannot begin yet. The rest of its line gets no turn.
  void PassLine();

  // Number of sequences that were examined.
  int64_t looks() const { return looks_; }

 private:
  // The sequences of one principal that have the same priority.
  struct Line {
    std::vector<Sequence*> sequences;  // in the order of arrival
    // index of the current sequence; the sequences before it had their turn
    size_t at = 0;
    int passed_over = 0;
  };
  // The sort key of a line. The line with the smallest key has the next turn.
  struct Claim {
    int64_t served = 0;    // how much the line's principal was served
    uint64_t arrival = 0;  // arrival of the line's first sequence
    size_t line = 0;
    friend auto operator<=>(const Claim&, const Claim&) = default;
  };

  bool FormLines();
  void Queue(size_t line);

  const AdmissionQueue* const queue_;
  // priority of the current lines; lines of lower priorities are formed later
  int64_t priority_ = INT64_MAX;
  std::vector<Line> lines_;
  std::priority_queue<Claim, std::vector<Claim>, std::greater<>> claims_;
  int64_t looks_ = 0;
};

// Engine thread only. Counts how many sequences are certainly planned before a given one. All
// sequences of the queue must be passed to Show in order. A short prompt may be planned before
// longer prompts of its principal. The sequences must outlive this object, because it keeps views
// of the names of their principals.
class QueueAheadCounter {
 public:
  // Returns how many of the sequences shown so far have credit and will certainly be planned before
  // `sequence`. These are the sequences that have a higher priority, or that belong to the same
  // principal and are not longer than `sequence`. Requires: `sequence` comes after them in the
  // queue.
  int64_t Of(const Sequence& sequence);
  void Show(const Sequence& sequence);

 private:
  void Reach(int32_t priority);

  int32_t priority_ = INT32_MAX;
  int64_t above_ = 0;  // number of sequences with a higher priority
  int64_t level_ = 0;  // number of sequences with the current priority
  // For each principal: the token counts of its sequences with the current priority, in ascending
  // order.
  absl::flat_hash_map<absl::string_view, std::vector<int64_t>> own_;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_ADMISSION_TURNS_H_
