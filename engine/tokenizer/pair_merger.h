// PairMerger: the algorithm that all byte-pair encodings share. It works for any kind of symbols.
#ifndef TIDEPOOL_ENGINE_TOKENIZER_PAIR_MERGER_H_
#define TIDEPOOL_ENGINE_TOKENIZER_PAIR_MERGER_H_

#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"

namespace tidepool::engine {

// Repeatedly merges the adjacent pair whose rule has the lowest rank, until no pair has a rule. If
// ranks are equal, the leftmost pair is merged. Thread-safe after the last AddRule.
class PairMerger {
 public:
  // A unit of a word. Negative symbols have no rules.
  using Symbol = int32_t;

  // Adds a rule. If the pair already has a rule, keeps the earlier rule and returns false.
  // Requires: symbols are not negative, and rank < 2^32 - 1.
  bool AddRule(Symbol left, Symbol right, uint32_t rank, Symbol result);

  // Merges in place. The result is at the start of `symbols`; returns its size. For n symbols,
  // takes O(n log n) time. For more than a few dozen symbols, allocates about 24 n bytes. Requires:
  // fewer than 2^32 symbols.
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

  absl::flat_hash_map<uint64_t, Rule> rules_;  // the keys are from PairKey
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_TOKENIZER_PAIR_MERGER_H_
