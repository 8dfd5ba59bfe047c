// PieceMerger: the merges of vocabularies whose words are made of characters: SentencePiece's
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
  // What becomes of text that no piece covers.
  struct Fallback {
    std::array<int32_t, 256> byte_ids;  // the token of each byte; all -1: there are none
    int32_t unknown_id = -1;            // then this one, once for a run of such characters
  };

  // `pieces` by id, "" where a token is not for merging; they outlive the merger and differ from
  // each other. Those that are not UTF-8 never come out of merges.
  PieceMerger(absl::Span<const std::string> pieces, const Fallback& fallback);

  // SentencePiece's rules: two neighbours that are a piece together merge, the highest score first.
  // `scores` and `is_unused` by id. Unused pieces take part and come apart again, into what they
  // were merged from. Steps: the sum over the pieces of their squared lengths in bytes.
  void AddScores(absl::Span<const float> scores, const std::vector<bool>& is_unused);

  // A rule of a list: those added earlier merge earlier. False: the pair has one already, which
  // stays.
  bool AddMerge(absl::string_view left, absl::string_view right);

  // After the last rule.
  void Finish();

  // Appends the ids of `text`, which may be any bytes: those that are not UTF-8 are characters that
  // no piece covers. n bytes: n log n steps, about 40 n bytes of memory. Requires less than 2 GiB.
  void Encode(absl::string_view text, std::vector<int32_t>* ids) const;

  // The token that is exactly `piece`, or -1.
  int32_t Find(absl::string_view piece) const;

 private:
  // Symbols below vocab_size_ are tokens; above are strings that rules speak of and the vocabulary
  // lacks. In a text, ~offset is a character that no rule speaks of.
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
  size_t longest_piece_ = 0;  // bytes
  uint32_t next_rank_ = 0;
  std::deque<std::string> extra_;  // by symbol - vocab_size_
  absl::flat_hash_map<absl::string_view, Symbol> symbols_;
  std::array<Symbol, 128> ascii_symbols_;  // those of symbols_ that are one byte
  PairMerger merger_;
  // What unused pieces come apart into.
  absl::flat_hash_map<Symbol, std::vector<Symbol>> unused_parts_;  // none of them comes apart
  // No rule puts a space behind anything but a space: texts can be merged word by word.
  bool words_begin_at_space_ = true;
  std::vector<bool> is_whole_;  // by id: its own characters merge to it
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_TOKENIZER_PIECE_MERGER_H_
