#include "engine/tokenizer/pair_merger.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <queue>
#include <vector>

#include "kernels/base/check.h"

namespace tidepool::engine {
namespace {

// Words of at most this length are merged by scanning all pairs, without queues.
constexpr size_t kShortWord = 32;

// A queue of positions, the smallest first. Positions are added almost in order. If they are in
// order, both operations take constant time.
class PositionQueue {
 public:
  bool empty() const { return next_ == ordered_.size() && late_.empty(); }

  void Push(uint32_t position) {
    if (next_ == ordered_.size()) {
      ordered_.clear();
      next_ = 0;
    }
    if (ordered_.empty() || position >= ordered_.back()) {
      ordered_.push_back(position);
    } else {
      late_.push(position);
    }
  }

  uint32_t Pop() {
    if (late_.empty() || (next_ < ordered_.size() && ordered_[next_] <= late_.top())) {
      return ordered_[next_++];
    }
    const uint32_t position = late_.top();
    late_.pop();
    return position;
  }

 private:
  std::vector<uint32_t> ordered_;  // in ascending order, from index next_ on
  size_t next_ = 0;
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> late_;
};

}  // namespace

bool PairMerger::AddRule(Symbol left, Symbol right, uint32_t rank, Symbol result) {
  CHECK_LT(rank, kNoRank);
  return rules_.try_emplace(PairKey(left, right), Rule{rank, result}).second;
}

size_t PairMerger::Merge(absl::Span<Symbol> symbols) const {
  CHECK_LT(symbols.size(), std::numeric_limits<uint32_t>::max());
  return symbols.size() <= kShortWord ? MergeShort(symbols) : MergeLong(symbols);
}

size_t PairMerger::MergeShort(absl::Span<Symbol> symbols) const {
  std::array<Rule, kShortWord> rules;  // rules[i] is the rule of symbol i and the symbol after it
  size_t size = symbols.size();
  for (size_t i = 0; i + 1 < size; ++i) rules[i] = FindRule(symbols[i], symbols[i + 1]);
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
    if (best + 1 < size) rules[best] = FindRule(symbols[best], symbols[best + 1]);
    if (best > 0) rules[best - 1] = FindRule(symbols[best - 1], symbols[best]);
  }
  return size;
}

// A long word as a linked list of symbols. The position of a symbol is the position of its first
// original symbol.
class PairMerger::Chain {
 public:
  Chain(const PairMerger& merger, absl::Span<const Symbol> symbols)
      : merger_(merger), end_(static_cast<uint32_t>(symbols.size())), links_(symbols.size()) {
    for (uint32_t i = 0; i < end_; ++i) links_[i] = {symbols[i], kNoRank, i - 1, i + 1};
    for (uint32_t i = 0; i + 1 < end_; ++i) UpdatePair(i);
  }

  // Merges until no pair has a rule. A merge adds at most two pairs to the queues, so the queues
  // have at most 3 n elements.
  void Run() {
    while (!ranks_.empty()) {
      const uint32_t rank = ranks_.top();
      PositionQueue& queue = queues_[rank];
      if (queue.empty()) {
        ranks_.pop();
        queues_.erase(rank);
        continue;
      }
      const uint32_t position = queue.Pop();
      // Skip a pair that has changed since it was queued.
      if (links_[position].rank == rank) MergeAt(position);
    }
  }

  size_t CopyTo(absl::Span<Symbol> symbols) const {
    size_t size = 0;
    for (uint32_t i = 0; i < end_; i = links_[i].next) symbols[size++] = links_[i].symbol;
    return size;
  }

 private:
  struct Link {
    Symbol symbol;
    // rank of the pair of this symbol and the next one; kNoRank if there is no rule, or if the link
    // was removed
    uint32_t rank;
    uint32_t previous;
    uint32_t next;
  };

  void MergeAt(uint32_t left) {
    const uint32_t right = links_[left].next;
    const uint32_t after = links_[right].next;
    links_[left].symbol = merger_.FindRule(links_[left].symbol, links_[right].symbol).result;
    links_[right].rank = kNoRank;
    links_[left].next = after;
    if (after < end_) links_[after].previous = left;
    UpdatePair(left);
    if (left > 0) UpdatePair(links_[left].previous);
  }

  void UpdatePair(uint32_t left) {
    const uint32_t right = links_[left].next;
    const uint32_t rank =
        right < end_ ? merger_.FindRule(links_[left].symbol, links_[right].symbol).rank : kNoRank;
    links_[left].rank = rank;
    if (rank == kNoRank) return;
    const auto [it, is_new] = queues_.try_emplace(rank);
    if (is_new) ranks_.push(rank);
    it->second.Push(left);
  }

  const PairMerger& merger_;
  const uint32_t end_;
  std::vector<Link> links_;
  // The positions of pairs, by rank. With a single heap of all pairs, each pair would take
  // logarithmic time.
  absl::flat_hash_map<uint32_t, PositionQueue> queues_;
  // the keys of queues_
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ranks_;
};

size_t PairMerger::MergeLong(absl::Span<Symbol> symbols) const {
  Chain chain(*this, symbols);
  chain.Run();
  return chain.CopyTo(symbols);
}

}  // namespace tidepool::engine
