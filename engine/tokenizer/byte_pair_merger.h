// BytePairMerger: the merges of a byte-level BPE vocabulary.
#ifndef TIDEPOOL_ENGINE_TOKENIZER_BYTE_PAIR_MERGER_H_
#define TIDEPOOL_ENGINE_TOKENIZER_BYTE_PAIR_MERGER_H_

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tidepool::engine {

// Starts from the bytes of a word and merges, again and again, the adjacent pair of the lowest rank
// (the leftmost of equals) until no pair is left that has one. Thread-safe once filled.
class BytePairMerger {
 public:
  // `token_bytes` by id, "" where a token is not for merging; they outlive the merger. Of equal
  // tokens the lowest id counts.
  explicit BytePairMerger(absl::Span<const std::string> token_bytes);

  // Gives the pair its rank: pairs added earlier merge earlier; of equal pairs the first counts.
  void AddMerge(absl::string_view left, absl::string_view right);

  // Appends the ids of `word`. A merged string that is no token becomes the tokens of its bytes; a
  // byte without a token becomes nothing (the unknown token of such vocabularies is a control
  // token, which text must not be able to write). n bytes: n log n steps, about 30 n bytes of
  // memory. Requires a word below 4 GiB.
  void Merge(absl::string_view word, std::vector<int32_t>* ids) const;

  // The token that is exactly `bytes`, or -1.
  int32_t Find(absl::string_view bytes) const;

 private:
  // A string that words are made of on the way. Symbols below vocab_size_ are tokens; above are
  // strings that merges speak of and the vocabulary lacks.
  using Symbol = int32_t;
  struct MergeRule {
    uint32_t rank = kNoRank;
    Symbol result = -1;
  };
  class Chain;
  static constexpr uint32_t kNoRank = 0xFFFFFFFF;

  static uint64_t PairKey(Symbol left, Symbol right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  Symbol Intern(absl::string_view bytes);
  MergeRule Rule(Symbol left, Symbol right) const;
  void MergeShort(absl::string_view word, std::vector<int32_t>* ids) const;
  void MergeLong(absl::string_view word, std::vector<int32_t>* ids) const;
  void Emit(Symbol symbol, std::vector<int32_t>* ids) const;

  const int32_t vocab_size_;
  uint32_t next_rank_ = 0;
  std::deque<std::string> extra_;  // by symbol - vocab_size_
  absl::flat_hash_map<absl::string_view, Symbol> symbols_;
  std::array<Symbol, 256> byte_symbols_;
  absl::flat_hash_map<uint64_t, MergeRule> rules_;  // by PairKey
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_TOKENIZER_BYTE_PAIR_MERGER_H_
