// BytePairMerger: applies the merges of a byte-level BPE vocabulary.
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

// Merges the bytes of a word as PairMerger does. Thread-safe after Finish.
class BytePairMerger {
 public:
  // `token_bytes` are indexed by id, and are "" for tokens that take no part in merges. They must
  // outlive the merger. If several tokens have the same bytes, the lowest id is used.
  explicit BytePairMerger(absl::Span<const std::string> token_bytes);

  // Adds a merge. Earlier merges have precedence. If the pair already has a merge, keeps the
  // earlier merge and returns false.
  bool AddMerge(absl::string_view left, absl::string_view right);

  // Must be called after the last AddMerge. Finds the tokens whose own bytes merge to that token,
  // so that Merge can look them up directly.
  void Finish();

  // Appends the ids of `word`. If a merged string is not a token, appends the tokens of its bytes.
  // A byte without a token is dropped. (The unknown token of such vocabularies is a control token,
  // and text must not be able to produce a control token.) For n bytes, takes O(n log n) time and
  // about 30 n bytes of memory. Requires: `word` is smaller than 4 GiB.
  void Merge(absl::string_view word, std::vector<int32_t>* ids) const;

  // Appends the tokens of the single bytes, without merging.
  void AppendBytes(absl::string_view bytes, std::vector<int32_t>* ids) const;

  // Returns the id of the token that is exactly `bytes`, or -1 if there is none.
  int32_t Find(absl::string_view bytes) const;

 private:
  // A symbol below vocab_size_ is a token. Any other symbol is a string that occurs in merges but
  // not in the vocabulary.
  using Symbol = PairMerger::Symbol;

  Symbol Intern(absl::string_view bytes);
  // Calls emit(symbol) for each symbol in the result of merging `word`.
  template <typename F>
  void MergeInto(absl::string_view word, F&& emit) const;

  const int32_t vocab_size_;
  uint32_t next_rank_ = 0;
  std::deque<std::string> extra_;  // index is symbol - vocab_size_
  absl::flat_hash_map<absl::string_view, Symbol> symbols_;
  std::array<Symbol, 256> byte_symbols_;
  PairMerger merger_;
  std::vector<bool> is_whole_;  // by id; true if the token's own bytes merge to that token
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_TOKENIZER_BYTE_PAIR_MERGER_H_
