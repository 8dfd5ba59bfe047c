#include "engine/grammar/token_walk.h"

#include <utility>

#include "absl/container/flat_hash_set.h"

namespace tidepool::engine::grammar {
namespace {

// If Contains must compare more pairs of expressions than this, the slice is walked instead.
constexpr size_t kMaxPairs = 512;
// Number of nodes between two times when other threads may use the automaton.
constexpr int32_t kNodesAlone = 32;

}  // namespace

bool TokenWalk::Run(State state, TokenMask* mask, absl::FunctionRef<bool()> give_up) {
  const base::MutexLock lock(&shared_.mutex);
  if (!Walk(trie_.others(), state, mask, give_up)) return false;
  // once false, it stays false, because each text of a slice is the beginning of a text of the next
  // slice
  bool contains = true;
  for (int32_t i = 0; i < static_cast<int32_t>(trie_.slices().size()); ++i) {
    const TokenTrie::Slice& slice = trie_.slices()[i];
    if (slice.trie.tokens.empty()) continue;
    contains = contains && ContainsSlice(state, i);
    if (contains) {
      mask->Add(slice.tokens);
    } else if (!Walk(slice.trie, state, mask, give_up)) {
      return false;
    }
  }
  const State term = shared_.automaton.Step(state, kTokenByte);
  if (term != kDead) WalkTerms(term, 0, 0, mask);
  if (!shared_.automaton.accepts(state)) return true;
  for (const int32_t id : trie_.stop_ids()) mask->Set(id);
  return true;
}

bool TokenWalk::Walk(const TokenTrie::Trie& trie, State state, TokenMask* mask,
                     absl::FunctionRef<bool()> give_up) {
  Automaton& automaton = shared_.automaton;
  if (path_.size() <= static_cast<size_t>(trie.max_depth)) path_.resize(trie.max_depth + 1);
  path_[0] = state;
  const auto nodes = static_cast<int32_t>(trie.bytes.size());
  int32_t visited = 0;
  for (int32_t node = 1; node < nodes;) {
    if (++visited % kNodesAlone == 0) {
      if (give_up()) return false;
      shared_.LetOthersIn();
    }
    const int32_t depth = trie.depths[node];
    const State next = automaton.Step(path_[depth - 1], trie.bytes[node]);
    if (next == kDead) {
      node = trie.ends[node];
      continue;
    }
    path_[depth] = next;
    for (int32_t i = trie.first_token[node]; i < trie.first_token[node + 1]; ++i) {
      mask->Set(trie.tokens[i]);
    }
    ++node;
  }
  return true;
}

// Walks the token terms whose ids begin with `prefix`: `digits` groups of 7 bits.
void TokenWalk::WalkTerms(State state, int32_t prefix, int digits, TokenMask* mask) {
  if (digits == kTokenTermBytes - 1) {
    mask->Set(prefix);
    return;
  }
  const int shift = 7 * (kTokenTermBytes - 2 - digits);
  for (int32_t digit = 0; digit < 128; ++digit) {
    const int64_t next = int64_t{prefix} << 7 | digit;
    if (next << shift >= trie_.vocab_size()) break;
    const State after = shared_.automaton.Step(state, static_cast<uint8_t>(digit));
    if (after != kDead) WalkTerms(after, static_cast<int32_t>(next), digits + 1, mask);
  }
}

bool TokenWalk::ContainsSlice(State state, int32_t slice) {
  RegexPool& pool = shared_.automaton.regexes();
  std::vector<Regex> unknown;
  for (const Automaton::Thread& thread : shared_.automaton.threads(state)) {
    if (pool.FreeCharacters(thread.regex) >= kSliceCharacters[slice]) return true;
    if (pool.FreeCharacters(thread.regex) == 0) unknown.push_back(thread.regex);
  }
  for (const Regex regex : unknown) {
    const auto [entry, added] = shared_.contains.try_emplace({slice, regex}, false);
    if (added) entry->second = Contains(regex, shared_.slices[slice]);
    if (entry->second) return true;
  }
  return false;
}

// Returns whether every text of `texts` is the beginning of a text of `regex`.
bool TokenWalk::Contains(Regex regex, Regex texts) {
  RegexPool& pool = shared_.automaton.regexes();
  absl::flat_hash_set<std::pair<Regex, Regex>> seen = {{regex, texts}};
  std::vector<std::pair<Regex, Regex>> left = {{regex, texts}};
  while (!left.empty()) {
    const auto [whole, part] = left.back();
    left.pop_back();
    for (int32_t byte_class = 0; byte_class < pool.classes(); ++byte_class) {
      const Regex part_rest = pool.DeriveClass(part, byte_class);
      if (part_rest == kNoRegex) continue;
      const Regex rest = pool.DeriveClass(whole, byte_class);
      if (rest == kNoRegex) return false;
      if (part_rest == kEmptyRegex || !seen.insert({rest, part_rest}).second) continue;
      if (seen.size() > kMaxPairs) return false;
      left.emplace_back(rest, part_rest);
    }
  }
  return true;
}

}  // namespace tidepool::engine::grammar
