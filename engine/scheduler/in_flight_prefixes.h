// InFlightPrefixes: the prompt blocks that running sequences compute next. A sequence that can use
// one of them waits for it instead of computing it again.
#ifndef TIDEPOOL_ENGINE_SCHEDULER_IN_FLIGHT_PREFIXES_H_
#define TIDEPOOL_ENGINE_SCHEDULER_IN_FLIGHT_PREFIXES_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "engine/kv/block_hash.h"
#include "engine/scheduler/sequence.h"

namespace tidepool::engine {

// Engine thread only. Valid until KV is committed or freed. Blocks are compared by their hashes. So
// a lookup takes time proportional to the number of different positions of these blocks, not to the
// length of prompts.
class InFlightPrefixes {
 public:
  // Requires: the sequence runs and has more prompt rows to compute.
  void Add(Sequence* sequence);

  // True if this sequence can use one of these next blocks: it has the same tokens from the start
  // and the same salt, and it is not the block with the sequence's last token.
  bool Hold(Sequence* sequence) const;

 private:
  std::vector<int64_t> depths_;            // distinct indices of the next blocks
  absl::flat_hash_set<BlockHash> blocks_;  // the next blocks
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_IN_FLIGHT_PREFIXES_H_
