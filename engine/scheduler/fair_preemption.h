// FairPreemption: which running sequences give up their places for a waiting principal that holds
// fewer. The newest sequence of the principal with the most places goes first. So a waiting
// principal gets a place after a bounded number of output tokens, however long the others'
// responses are.
//
// A sequence keeps its place for a quantum after each admission, which bounds the work that is done
// twice. No sequence loses its place to a request of the same principal.
#ifndef TIDEPOOL_ENGINE_SCHEDULER_FAIR_PREEMPTION_H_
#define TIDEPOOL_ENGINE_SCHEDULER_FAIR_PREEMPTION_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "engine/scheduler/admission_queue.h"
#include "engine/scheduler/sequence.h"

namespace tidepool::engine {

// Minimum output tokens after an admission, before a principal with more than its share can lose
// the place.
inline constexpr int64_t kPlaceQuantum = 16;
// If it is more: the quantum as a fraction of the tokens that the admission had to compute.
inline constexpr int64_t kRecomputeShare = 8;
// A principal keeps its only place for this number of quanta if another one has none. So if there
// are more principals than places, they take turns.
inline constexpr int64_t kOnlyPlaceQuanta = 16;

// The quantum of this sequence, in output tokens.
int64_t PlaceQuantum(const Sequence& sequence);

// Pure. Engine thread only. Returns the sequences that may be preempted for `for_whom`, in this
// order, as many as it needs. They have the same priority. Their principals hold more places than
// average, and at least two more than the waiting one. If the waiting principal holds none, a
// principal may also lose its only place. `restoring` are waiting sequences with reserved places.
std::vector<Sequence*> FairVictims(const SequenceQueue& running,
                                   absl::Span<const Sequence* const> restoring,
                                   const Sequence& for_whom);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_FAIR_PREEMPTION_H_
