// FairPreemption: which running sequences give their places to a principal that waits and holds
// fewer. The newest sequence of the principal that holds the most goes first. So whoever waits gets
// a place after a bounded number of output tokens, however long the others' responses are.
//
// A sequence keeps its place for a quantum after each admission, which bounds the work that is done
// twice. Nobody loses a place to a request of the same principal.
#ifndef TIDEPOOL_ENGINE_SCHEDULER_FAIR_PREEMPTION_H_
#define TIDEPOOL_ENGINE_SCHEDULER_FAIR_PREEMPTION_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "engine/scheduler/admission_queue.h"
#include "engine/scheduler/sequence.h"

namespace tidepool::engine {

// Output tokens after an admission, before a principal with more than its share loses the place.
inline constexpr int64_t kPlaceQuantum = 16;
// The same, as a part of the tokens that the admission had to compute, if that is more.
inline constexpr int64_t kRecomputeShare = 8;
// How many times as long a principal keeps its only place, when another one has none: more
// principals than places take turns.
inline constexpr int64_t kOnlyPlaceQuanta = 16;

// The quantum of this sequence, in output tokens.
int64_t PlaceQuantum(const Sequence& sequence);

// Pure. The sequences that may be preempted for `for_whom`, in this order, as many as it needs. Of
// equal priority, and of principals that hold more places than average and at least two more than
// its own; or of their only place, if its own principal has none. `restoring` are waiting sequences
// for which places are kept. Engine thread only.
std::vector<Sequence*> FairVictims(const SequenceQueue& running,
                                   absl::Span<const Sequence* const> restoring,
                                   const Sequence& for_whom);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_FAIR_PREEMPTION_H_
