// AdmissionTurns and QueueAheadCounter: the order of an AdmissionQueue during one plan.
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

// Engine thread only. During one plan, returns the waiting sequences with credit one by one, in the
// order of AdmissionQueue. Takes n log n time for n sequences.
class AdmissionTurns {
 public:
  // While this object exists, only the current sequence may leave the queue, and only its principal
  // may be charged. New sequences get no turn, unless their priority is lower than all that had a
  // turn.
  explicit AdmissionTurns(const AdmissionQueue* queue) : queue_(queue) {}

  // Returns the sequence whose turn it is, or null if there is none left.
  Sequence* Next();
  // Ends the current turn. The sequence may have left the queue. Requires: there is a current turn.
  void Pass();
  // Same for a sequence that cannot begin yet but lets the ones after it pass. After kMaxPassedOver
  // of these, the rest of its line gets no turn.
  static constexpr int kMaxPassedOver = 16;
  void PassOver();
  // Same, and the rest of its line gets no turn.
  void PassLine();

  // Number of sequences examined.
  int64_t looks() const { return looks_; }

 private:
  // The sequences of one principal with one priority.
  struct Line {
    std::vector<Sequence*> sequences;  // by arrival
    size_t at = 0;                     // the current one; the ones before had their turn
    int passed_over = 0;
  };
  // The sort key of a line. The smallest goes next.
  struct Claim {
    int64_t served = 0;    // to the principal
    uint64_t arrival = 0;  // of the line's first sequence
    size_t line = 0;
    friend auto operator<=>(const Claim&, const Claim&) = default;
  };

  bool FormLines();
  void Queue(size_t line);

  const AdmissionQueue* const queue_;
  int64_t priority_ = INT64_MAX;  // of the current lines; lower priorities follow later
  std::vector<Line> lines_;
  std::priority_queue<Claim, std::vector<Claim>, std::greater<>> claims_;
  int64_t looks_ = 0;
};

// Engine thread only. Counts the sequences that are certainly planned before a given one. It must
// be shown the queue in order. A short prompt may overtake longer ones of its principal. The
// sequences must outlive this object, because it keeps views of their principals.
class QueueAheadCounter {
 public:
  // Number of sequences shown so far that have credit and will certainly be planned before this
  // one: they have a higher priority, or the same principal and at most the same length. Requires:
  // this sequence comes after them in the queue.
  int64_t Of(const Sequence& sequence);
  void Show(const Sequence& sequence);

 private:
  void Reach(int32_t priority);

  int32_t priority_ = INT32_MAX;
  int64_t above_ = 0;  // sequences with a higher priority
  int64_t level_ = 0;  // the current priority
  // Token counts of sequences with the current priority, by principal, in ascending order.
  absl::flat_hash_map<absl::string_view, std::vector<int64_t>> own_;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_ADMISSION_TURNS_H_
