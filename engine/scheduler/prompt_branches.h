// BranchesWithin: finds the positions where waiting sequences branch off from a prompt that is
// being computed.
#ifndef TIDEPOOL_ENGINE_SCHEDULER_PROMPT_BRANCHES_H_
#define TIDEPOOL_ENGINE_SCHEDULER_PROMPT_BRANCHES_H_

#include <cstdint>
#include <vector>

#include "engine/scheduler/admission_queue.h"
#include "engine/scheduler/sequence.h"

namespace tidepool::engine {

// Maximum number of boundaries that BranchesWithin returns.
inline constexpr size_t kMaxBranches = 4;

// Returns the boundaries between blocks (numbers of blocks) after slot `first` and up to slot `end`
// where a waiting sequence can use the KV of `sequence` and does not continue with the same block.
// If there are more than kMaxBranches boundaries, returns those that the most sequences can use.
std::vector<int64_t> BranchesWithin(Sequence* sequence, int64_t first, int64_t end,
                                    const AdmissionQueue& waiting);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_PROMPT_BRANCHES_H_
