// Hashes that identify token prefixes: one per full KV block, each chained to the previous block's
// hash. Equal hashes mean equal tokens from the start of the sequence, unless an attacker
// constructs a collision: the hash is not cryptographic. So BlockPool compares tokens before it
// shares KV. The salt separates callers that must not learn about each other's prefixes.
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

// The hash before the first block. `seed` identifies everything else that KV depends on (model
// digest, KV type). `salt` is the caller's.
BlockHash HashRoot(absl::string_view seed, absl::string_view salt);

// The hash of the block with `tokens`, after the prefix with hash `parent`: XXH3-128 over both,
// with little-endian ids. Requires: kKvBlockTokens tokens.
BlockHash HashBlock(const BlockHash& parent, absl::Span<const int32_t> tokens);

// The low halves of all full blocks' hashes, in order. They are sent over the wire and can be
// compared with Engine::PrefixDigests.
std::vector<uint64_t> BlockDigests(absl::Span<const int32_t> tokens, absl::string_view seed,
                                   absl::string_view salt);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_KV_BLOCK_HASH_H_
