// PieceMerger: the merges of vocabularies whose words consist of characters: SentencePiece's
// byte-pair encoding, and Gemma 4's.
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

// A space in pieces and texts is a space here, not "▁". Thread-safe once filled:
//
//   PieceMerger merger(pieces, fallback);
//   merger.AddScores(scores, is_unused);  // or AddMerge for each
//   merger.Finish();
//   merger.Encode(" The sky", &ids);
class PieceMerger {
 public:
  // How to encode text that no piece covers.
  struct Fallback {
    std::array<int32_t, 256> byte_ids;  // the token of each byte; all -1: none
    int32_t unknown_id = -1;            // without byte tokens: once per run of such characters
  };

  // `pieces` by id, "" for tokens that take no part in merges. They outlive the merger and are
  // distinct. Merges never produce a piece that is invalid UTF-8.
  PieceMerger(absl::Span<const std::string> pieces, const Fallback& fallback);

  // Adds SentencePiece's rules: if two neighbours together form a piece, they merge, the highest
  // score first. `scores` and `is_unused` are by id. Unused pieces take part in merges, and are
  // split again at the end. Takes time proportional to the sum of the pieces' squared lengths in
  // bytes.
  void AddScores(absl::Span<const float> scores, const std::vector<bool>& is_unused);

  // Adds a merge. Earlier merges have precedence. Returns false if the pair already has one, which
  // stays.
  bool AddMerge(absl::string_view left, absl::string_view right);

  // Call it after the last rule.
  void Finish();

  // Appends the ids of `text`, which may contain any bytes. Invalid UTF-8 is treated as characters
  // that no piece covers. For n bytes, takes n log n time and about 40 n bytes of memory. Requires:
  // less than 2 GiB.
  void Encode(absl::string_view text, std::vector<int32_t>* ids) const;

  // Returns the token that is exactly `piece`, or -1.
  int32_t Find(absl::string_view piece) const;

 private:
  // Symbols below vocab_size_ are tokens. The others are strings that occur in rules but not in the
  // vocabulary. In a text, ~offset is a character without any rule.
  using Symbol = PairMerger::Symbol;

  Symbol FindSymbol(absl::string_view text) const;  // -1: none
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
  size_t longest_piece_ = 0;  // in bytes
  uint32_t next_rank_ = 0;
  std::deque<std::string> extra_;  // index: symbol - vocab_size_
  absl::flat_hash_map<absl::string_view, Symbol> symbols_;
  std::array<Symbol, 128> ascii_symbols_;  // the single-byte ones of symbols_
  PairMerger merger_;
  // What unused pieces are split into.
  absl::flat_hash_map<Symbol, std::vector<Symbol>> unused_parts_;  // none of the parts is unused
  // True if no rule puts a space after anything except a space. Then texts can be merged word by
  // word.
  bool words_begin_at_space_ = true;
  std::vector<bool> is_whole_;  // by id: the piece's own characters merge to it
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_TOKENIZER_PIECE_MERGER_H_
