// PieceMerger: the merges of vocabularies whose words consist of characters. Used for
// SentencePiece's byte-pair encoding and for Gemma 4's vocabulary.
#ifndef TIDEPOOL_ENGINE_TOKENIZER_PIECE_MERGER_H_
#define TIDEPOOL_ENGINE_TOKENIZER_PIECE_MERGER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/tokenizer/pair_merger.h"

namespace tidepool::engine {

// Pieces and texts are passed with normal spaces, not with "▁". Thread-safe after Finish.
//
//   PieceMerger merger(pieces, fallback);
//   merger.AddScores(scores, is_unused);  // or AddMerge for each merge
//   merger.Finish();
//   merger.Encode(" The sky", &ids);
class PieceMerger {
 public:
  // How to encode text for which there is no piece.
  struct Fallback {
    // the token of each byte; all are -1 if there are no byte tokens
    std::array<int32_t, 256> byte_ids;
    // used if there are no byte tokens: one unknown token for each run of characters without a
    // piece
    int32_t unknown_id = -1;
  };

  // `pieces` are indexed by id, and are "" for tokens that take no part in merges. They must be
  // distinct and must outlive the merger. Merges never produce a piece that is invalid UTF-8.
  PieceMerger(absl::Span<const std::string> pieces, const Fallback& fallback);

  // Adds SentencePiece's rules: two neighbours merge if together they are a piece, and pieces with
  // higher scores merge first. `scores` and `is_unused` are indexed by id. Unused pieces take part
  // in merges, and are split again at the end. Takes time proportional to the sum of the pieces'
  // squared lengths in bytes.
  void AddScores(absl::Span<const float> scores, const std::vector<bool>& is_unused);

  // Adds a merge. Earlier merges have precedence. If the pair already has a merge, keeps the
  // earlier merge and returns false.
  bool AddMerge(absl::string_view left, absl::string_view right);

  // Must be called after the last rule.
  void Finish();

  // Appends the ids of `text`, which may contain any bytes. Invalid UTF-8 is treated as characters
  // without a piece. For n bytes, takes O(n log n) time and about 40 n bytes of memory. Requires:
  // `text` is smaller than 2 GiB.
  void Encode(absl::string_view text, std::vector<int32_t>* ids) const;

  // Returns the id of the token that is exactly `piece`, or -1 if there is none.
  int32_t Find(absl::string_view piece) const;

 private:
  // A symbol below vocab_size_ is a token. Any other symbol is a string that occurs in rules but
  // not in the vocabulary. In a text, the symbol ~offset is the character at `offset`, if that
  // character has no rule.
  using Symbol = PairMerger::Symbol;

  Symbol FindSymbol(absl::string_view text) const;  // returns -1 if there is none
  Symbol Intern(absl::string_view text);
  void Add(absl::string_view text, Symbol symbol);
  void AddPieceRules(int32_t id, uint32_t rank);
  void FindUnusedParts(int32_t id);
  void ToSymbols(absl::string_view text, std::vector<Symbol>* symbols) const;
  size_t WordSize(absl::string_view text) const;
  void AppendSymbol(Symbol symbol, absl::string_view word, std::vector<int32_t>* ids) const;
  void AppendUnknown(absl::string_view text, std::vector<int32_t>* ids) const;

  const int32_t vocab_size_;
  const absl::Span<const std::string> pieces_;
  const Fallback fallback_;
  size_t longest_piece_ = 0;  // size in bytes
  uint32_t next_rank_ = 0;
  std::deque<std::string> extra_;  // index is symbol - vocab_size_
  absl::flat_hash_map<absl::string_view, Symbol> symbols_;
  // the symbols of single ASCII bytes, copied from symbols_
  std::array<Symbol, 128> ascii_symbols_;
  PairMerger merger_;
  // The pieces into which each unused piece is split. None of these parts is unused.
  absl::flat_hash_map<Symbol, std::vector<Symbol>> unused_parts_;
  // True if no rule produces a space after another character. Texts can then be merged word by
  // word.
  bool words_begin_at_space_ = true;
  std::vector<bool> is_whole_;  // by id; true if the piece's own characters merge to that piece
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_TOKENIZER_PIECE_MERGER_H_
