// BytePairMerger: the merges of a byte-level BPE vocabulary.
#ifndef TIDEPOOL_ENGINE_TOKENIZER_BYTE_PAIR_MERGER_H_
#define TIDEPOOL_ENGINE_TOKENIZER_BYTE_PAIR_MERGER_H_

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/tokenizer/pair_merger.h"

namespace tidepool::engine {

// Starts from the bytes of a word and merges as PairMerger does. Thread-safe once filled.
class BytePairMerger {
 public:
  // `token_bytes` by id, "" where a token is not for merging; they outlive the merger. Of equal
  // tokens the lowest id counts.
  explicit BytePairMerger(absl::Span<const std::string> token_bytes);

  // Gives the pair its rank: pairs added earlier merge earlier. False: the pair has one already,
  // which stays.
  bool AddMerge(absl::string_view left, absl::string_view right);

  // After the last AddMerge: finds the tokens that their own bytes merge to, which Merge then need
  // not merge.
  void Finish();

  // Appends the ids of `word`. A merged string that is no token becomes the tokens of its bytes; a
  // byte without a token becomes nothing (the unknown token of such vocabularies is a control
  // token, which text must not be able to write). n bytes: n log n steps, about 30 n bytes of
  // memory. Requires a word below 4 GiB.
  void Merge(absl::string_view word, std::vector<int32_t>* ids) const;

  // Appends the tokens of single bytes, unmerged.
  void AppendBytes(absl::string_view bytes, std::vector<int32_t>* ids) const;

  // The token that is exactly `bytes`, or -1.
  int32_t Find(absl::string_view bytes) const;

 private:
  // Symbols below vocab_size_ are tokens; above are strings that merges speak of and the vocabulary
  // lacks.
  using Symbol = PairMerger::Symbol;

  Symbol Intern(absl::string_view bytes);
  // Calls emit(symbol) for what `word` merges to.
  template <typename F>
  void MergeInto(absl::string_view word, F&& emit) const;

  const int32_t vocab_size_;
  uint32_t next_rank_ = 0;
  std::deque<std::string> extra_;  // by symbol - vocab_size_
  absl::flat_hash_map<absl::string_view, Symbol> symbols_;
  std::array<Symbol, 256> byte_symbols_;
  PairMerger merger_;
  std::vector<bool> is_whole_;  // by id: its own bytes merge to it
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_TOKENIZER_BYTE_PAIR_MERGER_H_
