// Hashes that identify token prefixes. Each full KV block has a hash, which also covers the hash of
// the previous block. So equal hashes mean equal tokens from the start of the sequence. But the
// hash is not cryptographic, so an attacker can construct a collision. For this reason, BlockPool
// compares tokens before it shares KV. A salt separates callers that must not learn about each
// other's prefixes.
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

// The hash before the first block. `seed` identifies everything else that the KV depends on (model
// digest, KV type). `salt` is the caller's salt.
BlockHash HashRoot(absl::string_view seed, absl::string_view salt);

// The hash of the block that contains `tokens`. `parent` is the hash of the prefix before the
// block. It is an XXH3-128 over `parent` and the ids in little-endian. Requires: there are
// kKvBlockTokens tokens.
BlockHash HashBlock(const BlockHash& parent, absl::Span<const int32_t> tokens);

// The low halves of the hashes of all full blocks, in order. They are sent over the network, and
// can be compared with Engine::PrefixDigests.
std::vector<uint64_t> BlockDigests(absl::Span<const int32_t> tokens, absl::string_view seed,
                                   absl::string_view salt);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_KV_BLOCK_HASH_H_
