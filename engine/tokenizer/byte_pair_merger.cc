#include "engine/tokenizer/byte_pair_merger.h"

#include "absl/container/inlined_vector.h"

namespace tidepool::engine {

BytePairMerger::BytePairMerger(absl::Span<const std::string> token_bytes)
    : vocab_size_(static_cast<int32_t>(token_bytes.size())) {
  symbols_.reserve(token_bytes.size());
  for (int32_t id = 0; id < vocab_size_; ++id) {
    if (!token_bytes[id].empty()) symbols_.try_emplace(token_bytes[id], id);
  }
  for (int byte = 0; byte < 256; ++byte) {
    byte_symbols_[byte] = Intern(std::string(1, static_cast<char>(byte)));
  }
}

BytePairMerger::Symbol BytePairMerger::Intern(absl::string_view bytes) {
  const auto it = symbols_.find(bytes);
  if (it != symbols_.end()) return it->second;
  const auto symbol = vocab_size_ + static_cast<Symbol>(extra_.size());
  extra_.emplace_back(bytes);
  symbols_.emplace(extra_.back(), symbol);
  return symbol;
}

bool BytePairMerger::AddMerge(absl::string_view left, absl::string_view right) {
  const Symbol left_symbol = Intern(left);
  const Symbol right_symbol = Intern(right);
  std::string both(left);
  both.append(right.data(), right.size());
  return merger_.AddRule(left_symbol, right_symbol, next_rank_++, Intern(both));
}

void BytePairMerger::Finish() {
  is_whole_.assign(vocab_size_, false);
  for (const auto& [bytes, symbol] : symbols_) {
    if (symbol >= vocab_size_) continue;
    int symbols = 0;
    Symbol last = -1;
    MergeInto(bytes, [&symbols, &last](Symbol merged) {
      ++symbols;
      last = merged;
    });
    is_whole_[symbol] = symbols == 1 && last == symbol;
  }
}

int32_t BytePairMerger::Find(absl::string_view bytes) const {
  const auto it = symbols_.find(bytes);
  return it != symbols_.end() && it->second < vocab_size_ ? it->second : -1;
}

template <typename F>
void BytePairMerger::MergeInto(absl::string_view word, F&& emit) const {
  constexpr size_t kCommonWord = 32;
  absl::InlinedVector<Symbol, kCommonWord> symbols(word.size());
  for (size_t i = 0; i < word.size(); ++i) {
    symbols[i] = byte_symbols_[static_cast<uint8_t>(word[i])];
  }
  const size_t size = merger_.Merge(absl::MakeSpan(symbols));
  for (size_t i = 0; i < size; ++i) emit(symbols[i]);
}

void BytePairMerger::Merge(absl::string_view word, std::vector<int32_t>* ids) const {
  // Most words in a text are single tokens.
  if (const int32_t id = Find(word); id >= 0 && is_whole_[id]) {
    ids->push_back(id);
    return;
  }
  MergeInto(word, [this, ids](Symbol symbol) {
    if (symbol < vocab_size_) {
      ids->push_back(symbol);
    } else {
      AppendBytes(extra_[symbol - vocab_size_], ids);
    }
  });
}

void BytePairMerger::AppendBytes(absl::string_view bytes, std::vector<int32_t>* ids) const {
  for (const char c : bytes) {
    const Symbol byte = byte_symbols_[static_cast<uint8_t>(c)];
    if (byte < vocab_size_) ids->push_back(byte);
  }
}

}  // namespace tidepool::engine
