#include "engine/tokenizer/byte_pair_merger.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <utility>

#include "kernels/base/check.h"

namespace tidepool::engine {
namespace {

// Words up to here are merged by scanning all their pairs, which needs no heap.
constexpr size_t kShortWord = 32;

}  // namespace

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

void BytePairMerger::AddMerge(absl::string_view left, absl::string_view right) {
  const Symbol left_symbol = Intern(left);
  const Symbol right_symbol = Intern(right);
  std::string both(left);
  both.append(right.data(), right.size());
  rules_.try_emplace(PairKey(left_symbol, right_symbol), MergeRule{next_rank_++, Intern(both)});
}

int32_t BytePairMerger::Find(absl::string_view bytes) const {
  const auto it = symbols_.find(bytes);
  return it != symbols_.end() && it->second < vocab_size_ ? it->second : -1;
}

BytePairMerger::MergeRule BytePairMerger::Rule(Symbol left, Symbol right) const {
  const auto it = rules_.find(PairKey(left, right));
  return it == rules_.end() ? MergeRule() : it->second;
}

void BytePairMerger::Merge(absl::string_view word, std::vector<int32_t>* ids) const {
  CHECK_LT(word.size(), std::numeric_limits<uint32_t>::max());
  word.size() <= kShortWord ? MergeShort(word, ids) : MergeLong(word, ids);
}

void BytePairMerger::MergeShort(absl::string_view word, std::vector<int32_t>* ids) const {
  std::array<Symbol, kShortWord> symbols;
  std::array<MergeRule, kShortWord> rules;  // of symbol i and the one behind it
  size_t size = word.size();
  for (size_t i = 0; i < size; ++i) symbols[i] = byte_symbols_[static_cast<uint8_t>(word[i])];
  for (size_t i = 0; i + 1 < size; ++i) rules[i] = Rule(symbols[i], symbols[i + 1]);
  while (size > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < size; ++i) {
      if (rules[i].rank < rules[best].rank) best = i;
    }
    if (rules[best].rank == kNoRank) break;
    symbols[best] = rules[best].result;
    std::copy(symbols.begin() + best + 2, symbols.begin() + size, symbols.begin() + best + 1);
    std::copy(rules.begin() + best + 1, rules.begin() + size - 1, rules.begin() + best);
    --size;
    if (best + 1 < size) rules[best] = Rule(symbols[best], symbols[best + 1]);
    if (best > 0) rules[best - 1] = Rule(symbols[best - 1], symbols[best]);
  }
  for (size_t i = 0; i < size; ++i) Emit(symbols[i], ids);
}

// A long word as a linked list of symbols at the positions of their first bytes.
class BytePairMerger::Chain {
 public:
  Chain(const BytePairMerger& merger, absl::string_view word)
      : merger_(merger), end_(static_cast<uint32_t>(word.size())), links_(word.size()) {
    for (uint32_t i = 0; i < end_; ++i) {
      links_[i] = {merger.byte_symbols_[static_cast<uint8_t>(word[i])], kNoRank, i - 1, i + 1};
    }
    for (uint32_t i = 0; i + 1 < end_; ++i) UpdatePair(i);
  }

  // Merges until nothing merges.
  void Run() {
    while (!ranks_.empty()) {
      const uint32_t rank = ranks_.top();
      ranks_.pop();
      std::vector<uint32_t> positions = std::move(buckets_[rank]);
      buckets_.erase(rank);
      if (!std::is_sorted(positions.begin(), positions.end())) {
        std::sort(positions.begin(), positions.end());
      }
      // No merge makes a pair of its own rank: its result is longer than both of that pair.
      for (size_t i = 0; i < positions.size(); ++i) {
        if (!ranks_.empty() && ranks_.top() < rank) {
          // A pair of a lower rank, which trained vocabularies never have here, goes first.
          for (; i < positions.size(); ++i) Enqueue(rank, positions[i]);
          break;
        }
        // Pairs that have changed since are passed over.
        if (links_[positions[i]].rank == rank) MergeAt(positions[i]);
      }
    }
  }

  // Calls emit(symbol) from left to right.
  template <typename F>
  void ForEach(F&& emit) const {
    for (uint32_t i = 0; i < end_; i = links_[i].next) emit(links_[i].symbol);
  }

 private:
  struct Link {
    Symbol symbol;
    uint32_t rank;  // of the pair with the next symbol; kNoRank also where the link is gone
    uint32_t previous;
    uint32_t next;
  };

  void MergeAt(uint32_t left) {
    const uint32_t right = links_[left].next;
    const uint32_t behind = links_[right].next;
    links_[left].symbol = merger_.Rule(links_[left].symbol, links_[right].symbol).result;
    links_[right].rank = kNoRank;
    links_[left].next = behind;
    if (behind < end_) links_[behind].previous = left;
    UpdatePair(left);
    if (left > 0) UpdatePair(links_[left].previous);
  }

  void UpdatePair(uint32_t left) {
    const uint32_t right = links_[left].next;
    const uint32_t rank =
        right < end_ ? merger_.Rule(links_[left].symbol, links_[right].symbol).rank : kNoRank;
    links_[left].rank = rank;
    if (rank != kNoRank) Enqueue(rank, left);
  }

  void Enqueue(uint32_t rank, uint32_t position) {
    std::vector<uint32_t>& bucket = buckets_[rank];
    if (bucket.empty()) ranks_.push(rank);
    bucket.push_back(position);
  }

  const BytePairMerger& merger_;
  const uint32_t end_;
  std::vector<Link> links_;
  // Positions of pairs, by rank; a heap of pairs would cost a logarithm for each of them.
  absl::flat_hash_map<uint32_t, std::vector<uint32_t>> buckets_;
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ranks_;  // of the buckets
};

void BytePairMerger::MergeLong(absl::string_view word, std::vector<int32_t>* ids) const {
  Chain chain(*this, word);
  chain.Run();
  chain.ForEach([this, ids](Symbol symbol) { Emit(symbol, ids); });
}

void BytePairMerger::Emit(Symbol symbol, std::vector<int32_t>* ids) const {
  if (symbol < vocab_size_) {
    ids->push_back(symbol);
    return;
  }
  for (const char c : extra_[symbol - vocab_size_]) {
    const Symbol byte = byte_symbols_[static_cast<uint8_t>(c)];
    if (byte < vocab_size_) ids->push_back(byte);
  }
}

}  // namespace tidepool::engine
