// InFlightPrefixes: which blocks of prompts are about to be computed, so that who can use one of
// them waits for it instead of computing it again.
#ifndef TIDEPOOL_ENGINE_SCHEDULER_IN_FLIGHT_PREFIXES_H_
#define TIDEPOOL_ENGINE_SCHEDULER_IN_FLIGHT_PREFIXES_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "engine/kv/block_hash.h"
#include "engine/scheduler/sequence.h"

namespace tidepool::engine {

// Engine thread only. Good until KV is committed or given back. Blocks are compared by their
// hashes, so that a look costs as much as those that were added have come differently far, however
// long the prompts are.
class InFlightPrefixes {
 public:
  // Requires: the sequence runs, and goes on with its prompt.
  void Add(Sequence* sequence);

  // Whether the next block of one of those is also one that this sequence can be given: of the same
  // tokens from the start and the same salt, and not the one with its last token.
  bool Hold(Sequence* sequence) const;

 private:
  std::vector<int64_t> depths_;            // numbers of the next blocks, each once
  absl::flat_hash_set<BlockHash> blocks_;  // the next blocks
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_IN_FLIGHT_PREFIXES_H_
