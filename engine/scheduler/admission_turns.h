// AdmissionTurns and QueueAheadCounter: the order of an AdmissionQueue, for one plan over all who
// wait.
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

// Whose turn it is while one plan is made, among those with credit: each once, in the order of
// AdmissionQueue, at a cost of n log n for n of them. Engine thread only.
class AdmissionTurns {
 public:
  // Until these turns end, only the sequence whose turn it is may leave the queue, and only that
  // one's principal may be charged. Sequences that come get no turn, unless their priority is lower
  // than that of any that had its turn.
  explicit AdmissionTurns(const AdmissionQueue* queue) : queue_(queue) {}

  // Null: nobody's.
  Sequence* Next();
  // Takes the turn from the one that has it, which may have left the queue. Requires: somebody
  // does.
  void Pass();
  // The same for one that may not begin yet, but does not hold up those behind it. After
  // kMaxPassedOver of these in its line, the rest of the line gets no turn.
  static constexpr int kMaxPassedOver = 16;
  void PassOver();
  // The same, and the rest of its line gets no turn.
  void PassLine();

  // Sequences that were looked at.
  int64_t looks() const { return looks_; }

 private:
  // Of one principal and one priority.
  struct Line {
    std::vector<Sequence*> sequences;  // by arrival
    size_t at = 0;                     // those before had their turn
    int passed_over = 0;
  };
  // A line's: the least goes next.
  struct Claim {
    int64_t served = 0;    // to the principal
    uint64_t arrival = 0;  // of the line's first
    size_t line = 0;
    friend auto operator<=>(const Claim&, const Claim&) = default;
  };

  bool FormLines();
  void Queue(size_t line);

  const AdmissionQueue* const queue_;
  int64_t priority_ = INT64_MAX;  // of the lines; those of lower ones are still to come
  std::vector<Line> lines_;
  std::priority_queue<Claim, std::vector<Claim>, std::greater<>> claims_;
  int64_t looks_ = 0;
};

// Who is certainly planned before whom: counts, while it is shown the queue from its beginning. A
// short prompt may overtake longer ones of its principal.
// Engine thread only. What it was shown outlives it: it keeps views of the principals.
class QueueAheadCounter {
 public:
  // How many of those that were shown have credit and are planned before this one, whoever is
  // served meanwhile: they are of higher priority, or of its own principal and not longer.
  // Requires: it comes behind them in the queue.
  int64_t Of(const Sequence& sequence);
  void Show(const Sequence& sequence);

 private:
  void Reach(int32_t priority);

  int32_t priority_ = INT32_MAX;
  int64_t above_ = 0;  // of higher priority
  int64_t level_ = 0;  // of this one
  // Of this one, by principal: their tokens, ascending.
  absl::flat_hash_map<absl::string_view, std::vector<int64_t>> own_;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_ADMISSION_TURNS_H_
