#include "engine/tokenizer/piece_merger.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/base/utf8.h"

namespace tidepool::engine {
namespace {

// Returns the size of the first character of `text`. A sequence of invalid UTF-8 is one character.
size_t CharSize(absl::string_view text) {
  return static_cast<uint8_t>(text[0]) < 0x80 ? 1 : base::NextUtf8Char(text).size;
}

}  // namespace

PieceMerger::PieceMerger(absl::Span<const std::string> pieces, const Fallback& fallback)
    : vocab_size_(static_cast<int32_t>(pieces.size())), pieces_(pieces), fallback_(fallback) {
  symbols_.reserve(pieces.size());
  ascii_symbols_.fill(-1);
  for (int32_t id = 0; id < vocab_size_; ++id) {
    if (pieces[id].empty() || !base::CheckUtf8(pieces[id], "").ok()) continue;
    Add(pieces[id], id);
    longest_piece_ = std::max(longest_piece_, pieces[id].size());
  }
}

void PieceMerger::Add(absl::string_view text, Symbol symbol) {
  symbols_.emplace(text, symbol);
  const auto first = static_cast<uint8_t>(text[0]);
  if (text.size() == 1 && first < ascii_symbols_.size()) ascii_symbols_[first] = symbol;
}

PieceMerger::Symbol PieceMerger::FindSymbol(absl::string_view text) const {
  const auto it = symbols_.find(text);
  return it == symbols_.end() ? -1 : it->second;
}

PieceMerger::Symbol PieceMerger::Intern(absl::string_view text) {
  if (const Symbol symbol = FindSymbol(text); symbol >= 0) return symbol;
  const auto symbol = vocab_size_ + static_cast<Symbol>(extra_.size());
  extra_.emplace_back(text);
  Add(extra_.back(), symbol);
  return symbol;
}

void PieceMerger::AddPieceRules(int32_t id, uint32_t rank) {
  const absl::string_view piece = pieces_[id];
  for (size_t cut = CharSize(piece); cut < piece.size(); cut += CharSize(piece.substr(cut))) {
    const Symbol left = FindSymbol(piece.substr(0, cut));
    const Symbol right = FindSymbol(piece.substr(cut));
    if (left < 0 || right < 0) continue;
    merger_.AddRule(left, right, rank, id);
    if (piece[cut] == ' ' && piece[cut - 1] != ' ') words_begin_at_space_ = false;
  }
}

void PieceMerger::AddScores(absl::Span<const float> scores, const std::vector<bool>& is_unused) {
  std::vector<float> ranks(scores.begin(), scores.end());
  std::sort(ranks.begin(), ranks.end(), std::greater<>());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < vocab_size_; ++id) {
    if (FindSymbol(pieces_[id]) == id) ids.push_back(id);
  }
  for (const int32_t id : ids) {
    for (absl::string_view rest = pieces_[id]; !rest.empty(); rest.remove_prefix(CharSize(rest))) {
      Intern(rest.substr(0, CharSize(rest)));
    }
  }
  // Shorter pieces are first, so that the parts of an unused piece are known before they are
  // needed.
  std::stable_sort(ids.begin(), ids.end(),
                   [this](int32_t a, int32_t b) { return pieces_[a].size() < pieces_[b].size(); });
  for (const int32_t id : ids) {
    if (is_unused[id]) FindUnusedParts(id);
    const auto rank = std::lower_bound(ranks.begin(), ranks.end(), scores[id], std::greater<>());
    AddPieceRules(id, static_cast<uint32_t>(rank - ranks.begin()));
  }
}

void PieceMerger::FindUnusedParts(int32_t id) {
  std::vector<Symbol> symbols;
  ToSymbols(pieces_[id], &symbols);
  const size_t size = merger_.Merge(absl::MakeSpan(symbols));
  std::vector<Symbol> parts;
  for (size_t i = 0; i < size; ++i) {
    const auto it = unused_parts_.find(symbols[i]);
    if (it == unused_parts_.end()) {
      parts.push_back(symbols[i]);
    } else {
      parts.insert(parts.end(), it->second.begin(), it->second.end());
    }
  }
  unused_parts_[id] = std::move(parts);
}

bool PieceMerger::AddMerge(absl::string_view left, absl::string_view right) {
  if (right[0] == ' ' && left.back() != ' ') words_begin_at_space_ = false;
  const Symbol left_symbol = Intern(left);
  const Symbol right_symbol = Intern(right);
  std::string both(left);
  both.append(right.data(), right.size());
  return merger_.AddRule(left_symbol, right_symbol, next_rank_++, Intern(both));
}

void PieceMerger::Finish() {
  is_whole_.assign(vocab_size_, false);
  std::vector<Symbol> symbols;
  for (const auto& [text, symbol] : symbols_) {
    if (symbol >= vocab_size_ || unused_parts_.contains(symbol)) continue;
    ToSymbols(text, &symbols);
    is_whole_[symbol] = merger_.Merge(absl::MakeSpan(symbols)) == 1 && symbols[0] == symbol;
  }
}

int32_t PieceMerger::Find(absl::string_view piece) const {
  const Symbol symbol = FindSymbol(piece);
  return symbol < vocab_size_ ? symbol : -1;
}

void PieceMerger::ToSymbols(absl::string_view text, std::vector<Symbol>* symbols) const {
  symbols->clear();
  for (size_t at = 0; at < text.size();) {
    const auto byte = static_cast<uint8_t>(text[at]);
    const size_t size = CharSize(text.substr(at));
    const Symbol symbol =
        byte < ascii_symbols_.size() ? ascii_symbols_[byte] : FindSymbol(text.substr(at, size));
    symbols->push_back(symbol >= 0 ? symbol : ~static_cast<Symbol>(at));
    at += size;
  }
}

// Returns the end of the first part of `text` that can be merged on its own.
size_t PieceMerger::WordSize(absl::string_view text) const {
  if (!words_begin_at_space_) return text.size();
  const size_t first = text.find_first_not_of(' ');
  if (first == absl::string_view::npos) return text.size();
  return std::min(text.find(' ', first), text.size());
}

void PieceMerger::Encode(absl::string_view text, std::vector<int32_t>* ids) const {
  std::vector<Symbol> symbols;
  while (!text.empty()) {
    const absl::string_view word = text.substr(0, WordSize(text));
    text.remove_prefix(word.size());
    // Most words in a text are single tokens.
    const int32_t id = word.size() <= longest_piece_ ? Find(word) : -1;
    if (id >= 0 && is_whole_[id]) {
      ids->push_back(id);
      continue;
    }
    ToSymbols(word, &symbols);
    const size_t size = merger_.Merge(absl::MakeSpan(symbols));
    for (size_t i = 0; i < size; ++i) AppendSymbol(symbols[i], word, ids);
  }
}

void PieceMerger::AppendSymbol(Symbol symbol, absl::string_view word,
                               std::vector<int32_t>* ids) const {
  if (symbol < 0) {
    const absl::string_view rest = word.substr(~symbol);
    AppendUnknown(rest.substr(0, CharSize(rest)), ids);
  } else if (symbol >= vocab_size_) {
    AppendUnknown(extra_[symbol - vocab_size_], ids);
  } else if (const auto it = unused_parts_.find(symbol); it != unused_parts_.end()) {
    for (const Symbol part : it->second) {
      if (part < vocab_size_) {
        ids->push_back(part);
      } else {
        AppendUnknown(extra_[part - vocab_size_], ids);
      }
    }
  } else {
    ids->push_back(symbol);
  }
}

void PieceMerger::AppendUnknown(absl::string_view text, std::vector<int32_t>* ids) const {
  if (fallback_.byte_ids[0] >= 0) {
    for (const char c : text) ids->push_back(fallback_.byte_ids[static_cast<uint8_t>(c)]);
  } else if (fallback_.unknown_id >= 0 && (ids->empty() || ids->back() != fallback_.unknown_id)) {
    ids->push_back(fallback_.unknown_id);
  }
}

}  // namespace tidepool::engine
