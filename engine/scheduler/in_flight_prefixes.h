// InFlightPrefixes: the prompt blocks that running sequences will compute next. A waiting sequence
// that can use such a block waits for it, so that the block is not computed twice.
#ifndef TIDEPOOL_ENGINE_SCHEDULER_IN_FLIGHT_PREFIXES_H_
#define TIDEPOOL_ENGINE_SCHEDULER_IN_FLIGHT_PREFIXES_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "engine/kv/block_hash.h"
#include "engine/scheduler/sequence.h"

namespace tidepool::engine {

// Engine thread only. Valid until KV is committed or freed. Blocks are compared by their hashes. So
// the time of a lookup depends on the number of different positions of these blocks, and not on the
// length of prompts.
class InFlightPrefixes {
 public:
  // Adds the next block of a sequence. Requires: the sequence runs and has more prompt rows to
  // compute.
  void Add(Sequence* sequence);

  // Returns whether this sequence can use one of the blocks. A sequence can use a block if it has
  // the same salt and the same tokens up to the block's end, and its last token is not in the
  // block.
  bool Hold(Sequence* sequence) const;

 private:
  std::vector<int64_t> depths_;            // distinct positions of the blocks in their sequences
  absl::flat_hash_set<BlockHash> blocks_;  // hashes of the blocks
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_IN_FLIGHT_PREFIXES_H_
