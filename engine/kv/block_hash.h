// Names of token prefixes: one hash per full KV block, each chained to the one before it, so that
// equal hashes mean equal tokens from the start of the sequence, but for what somebody seeks out:
// it is not cryptographic, and BlockPool compares tokens before it lets KV be shared. The salt
// keeps callers apart who must not learn of each other's prefixes.
#ifndef TIDEPOOL_ENGINE_KV_BLOCK_HASH_H_
#define TIDEPOOL_ENGINE_KV_BLOCK_HASH_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tidepool::engine {

struct BlockHash {
  uint64_t low = 0;
  uint64_t high = 0;

  friend bool operator==(const BlockHash&, const BlockHash&) = default;
  template <typename H>
  friend H AbslHashValue(H state, const BlockHash& hash) {
    return H::combine(std::move(state), hash.low, hash.high);
  }
};

// The hash before the first block. `seed` is what makes KV of equal tokens equal (model digest, KV
// type), `salt` the caller's.
BlockHash HashRoot(absl::string_view seed, absl::string_view salt);

// The hash of the block that holds `tokens`, behind the prefix named by `parent`: XXH3-128 over
// both, the ids little-endian. Requires: kKvBlockTokens tokens.
BlockHash HashBlock(const BlockHash& parent, absl::Span<const int32_t> tokens);

// The low halves of all full blocks' hashes, in order: what goes over the wire, and what
// Engine::PrefixDigests can be matched with.
std::vector<uint64_t> BlockDigests(absl::Span<const int32_t> tokens, absl::string_view seed,
                                   absl::string_view salt);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_KV_BLOCK_HASH_H_
