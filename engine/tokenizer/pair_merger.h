// PairMerger: the common algorithm of all byte-pair encodings, for any kind of symbols.
#ifndef TIDEPOOL_ENGINE_TOKENIZER_PAIR_MERGER_H_
#define TIDEPOOL_ENGINE_TOKENIZER_PAIR_MERGER_H_

#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"

namespace tidepool::engine {

// Repeatedly merges the adjacent pair with the lowest rank (the leftmost among equals), until no
// pair has a rule. Thread-safe once filled.
class PairMerger {
 public:
  // The units of words. Negative symbols have no rules.
  using Symbol = int32_t;

  // Returns false if the pair already has a rule, which stays. Requires: symbols are not negative,
  // and rank < 2^32 - 1.
  bool AddRule(Symbol left, Symbol right, uint32_t rank, Symbol result);

  // Merges in place and returns the size of the result, which is at the beginning of `symbols`. For
  // n symbols, takes n log n time and, for more than a few dozen symbols, about 24 n bytes of
  // memory. Requires: fewer than 2^32 symbols.
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
