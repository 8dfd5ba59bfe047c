// PairMerger: the one loop under every byte-pair encoding, over symbols of any kind.
#ifndef TIDEPOOL_ENGINE_TOKENIZER_PAIR_MERGER_H_
#define TIDEPOOL_ENGINE_TOKENIZER_PAIR_MERGER_H_

#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"

namespace tidepool::engine {

// Merges, again and again, the adjacent pair of the lowest rank (the leftmost of equals) until no
// pair is left that has one. Thread-safe once filled.
class PairMerger {
 public:
  // What words are made of. Symbols below 0 have no rules.
  using Symbol = int32_t;

  // False: the pair has a rule already, which stays. Requires symbols of 0 and more and a rank
  // below 2^32 - 1.
  bool AddRule(Symbol left, Symbol right, uint32_t rank, Symbol result);

  // Merges in place: `symbols` begins with the result, whose size is returned. n symbols: n log n
  // steps and, past a few dozen symbols, about 24 n bytes of memory. Requires less than 2^32
  // symbols.
  size_t Merge(absl::Span<Symbol> symbols) const;

 private:
  struct Rule {
    uint32_t rank = kNoRank;
    Symbol result = -1;
  };
  class Chain;
  static constexpr uint32_t kNoRank = 0xFFFFFFFF;

  static uint64_t PairKey(Symbol left, Symbol right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  Rule FindRule(Symbol left, Symbol right) const {
    const auto it = rules_.find(PairKey(left, right));
    return it == rules_.end() ? Rule() : it->second;
  }
  size_t MergeShort(absl::Span<Symbol> symbols) const;
  size_t MergeLong(absl::Span<Symbol> symbols) const;

  absl::flat_hash_map<uint64_t, Rule> rules_;  // by PairKey
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_TOKENIZER_PAIR_MERGER_H_
