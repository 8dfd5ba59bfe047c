// FairPreemption: which running sequences lose their places to a waiting principal that holds fewer
// places. The first to lose its place is the newest sequence of the principal with the most places.
// So a waiting principal gets a place after a bounded number of output tokens, even if the
// responses of the others are long.
//
// After each admission, a sequence keeps its place for a quantum of output tokens. This limits the
// amount of KV that must be computed again. A sequence never loses its place to a request of its
// own principal.
#ifndef TIDEPOOL_ENGINE_SCHEDULER_FAIR_PREEMPTION_H_
#define TIDEPOOL_ENGINE_SCHEDULER_FAIR_PREEMPTION_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "engine/scheduler/admission_queue.h"
#include "engine/scheduler/sequence.h"

namespace tidepool::engine {

// The minimum quantum, in output tokens. During the quantum, a place cannot be lost to a principal
// with fewer places.
inline constexpr int64_t kPlaceQuantum = 16;
// The quantum is at least this fraction (1 / kRecomputeShare) of the tokens that the admission had
// to compute.
inline constexpr int64_t kRecomputeShare = 8;
// For this number of quanta, a principal keeps its only place although another principal has none.
// So if there are more principals than places, they take turns.
inline constexpr int64_t kOnlyPlaceQuanta = 16;

// Returns the quantum of this sequence, in output tokens.
int64_t PlaceQuantum(const Sequence& sequence);

// Pure. Engine thread only. Returns the sequences that may be preempted for `for_whom`, in this
// order. It returns only as many as are needed. They have the same priority as `for_whom`. Their
// principals hold more places than the average, and at least two more than the waiting principal.
// If the waiting principal holds no place, a principal may also lose its only place. `restoring`
// are waiting sequences that have reserved places.
std::vector<Sequence*> FairVictims(const SequenceQueue& running,
                                   absl::Span<const Sequence* const> restoring,
                                   const Sequence& for_whom);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_FAIR_PREEMPTION_H_
