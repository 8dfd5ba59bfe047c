#include "engine/grammar/token_walk.h"

#include <utility>

#include "absl/container/flat_hash_set.h"

namespace tidepool::engine::grammar {
namespace {

// If Contains must compare more pairs of expressions than this, the slice is walked instead.
constexpr size_t kMaxPairs = 512;
// Number of nodes between two times when other threads may use the automaton.
constexpr int32_t kNodesAlone = 32;
// A state with more threads is walked as a whole.
constexpr size_t kMaxParts = 8;
constexpr size_t kMaxExits = 1024;

// WalkBelow skips both.
static_assert(kDead == 0 && kNoRegex == 0);

// Adds the tokens that end at a node.
void AddTokensAt(const TokenTrie::Trie& trie, int32_t node, TokenMask* mask) {
  for (int32_t i = trie.first_token[node]; i < trie.first_token[node + 1]; ++i) {
    mask->Set(trie.tokens[i]);
  }
}

}  // namespace

bool TokenWalk::Run(State state, TokenMask* mask) {
  const AutomatonLock lock(&shared_);
  const absl::Span<const Automaton::Thread> all = shared_.automaton.threads(state);
  const std::vector<Automaton::Thread> threads(all.begin(), all.end());
  std::vector<Part> parts;
  if (!FindParts(threads, &parts)) return false;
  if (parts.empty() && !WalkTries(state, mask)) return false;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!AddPart(*parts[i], threads[i].stack, mask)) return false;
  }
  const State term = shared_.automaton.Step(state, kTokenByte);
  if (term != kDead) WalkTerms(term, 0, 0, mask);
  if (!shared_.automaton.accepts(state)) return true;
  for (const int32_t id : trie_->stop_ids()) mask->Set(id);
  return true;
}

bool TokenWalk::WalkTries(State state, TokenMask* mask) {
  if (!WalkTrie(trie_->others(), 0, state, mask)) return false;
  // once false, it stays false, because each text of a slice is the beginning of a text of the next
  // slice
  bool contains = true;
  for (int32_t i = 0; i < static_cast<int32_t>(trie_->slices().size()); ++i) {
    const TokenTrie::Slice& slice = trie_->slices()[i];
    if (slice.trie.tokens.empty()) continue;
    contains = contains && AnyContainsSlice(state, i);
    if (contains) {
      mask->Add(slice.tokens);
    } else if (!WalkTrie(slice.trie, 0, state, mask)) {
      return false;
    }
  }
  return true;
}

// Adds the tokens of `trie` below `root`, which `state` belongs to.
bool TokenWalk::WalkTrie(const TokenTrie::Trie& trie, int32_t root, State state, TokenMask* mask) {
  Automaton* const automaton = &shared_.automaton;
  return WalkBelow(
      trie, root, state, [automaton](State at, uint8_t byte) { return automaton->Step(at, byte); },
      [&trie, mask](int32_t node, State) { AddTokensAt(trie, node, mask); });
}

// Visits the nodes below `root`, which `state` belongs to. Skips nodes whose states are dead (0),
// and all nodes below these. Returns false if the walk gave up.
template <typename Step, typename Visit>
bool TokenWalk::WalkBelow(const TokenTrie::Trie& trie, int32_t root, int32_t state, Step step,
                          Visit visit) {
  if (path_.size() <= static_cast<size_t>(trie.max_depth)) path_.resize(trie.max_depth + 1);
  path_[trie.depths[root]] = state;
  const int32_t end = trie.ends[root];
  for (int32_t node = root + 1; node < end;) {
    if (++visited_ % kNodesAlone == 0) {
      if (give_up_()) return false;
      shared_.LetOthersIn();
    }
    const int32_t depth = trie.depths[node];
    const int32_t next = step(path_[depth - 1], trie.bytes[node]);
    if (next == 0) {
      node = trie.ends[node];
      continue;
    }
    path_[depth] = next;
    visit(node, next);
    ++node;
  }
  return true;
}

// Sets `parts` to the tokens of each thread's expression, or leaves it empty if the tries must be
// walked instead. Returns false if the walk gave up.
bool TokenWalk::FindParts(absl::Span<const Automaton::Thread> threads, std::vector<Part>* parts) {
  if (threads.size() > kMaxParts) return true;
  std::vector<Part> found;
  for (const Automaton::Thread& thread : threads) {
    const Regex regex = shared_.automaton.regexes().Clip(thread.regex, trie_->longest());
    shared_.SetVocabulary(trie_);
    const auto known = shared_.expressions.find(regex);
    Part part = known == shared_.expressions.end() ? nullptr : known->second;
    if (part == nullptr) {
      part = Examine(regex);
      if (part == nullptr) return false;
      shared_.SetVocabulary(trie_);  // another thread may have changed it
      shared_.StoreExpression(regex, part);
    }
    if (part->too_many_exits) return true;
    found.push_back(std::move(part));
  }
  *parts = std::move(found);
  return true;
}

// Adds the tokens of `trie` that begin a text of the expression to `inside`, and its exits to
// `result`.
bool TokenWalk::WalkExpression(const TokenTrie::Trie& trie, Regex regex, TokenMask* inside,
                               ExpressionTokens* result) {
  RegexPool& pool = shared_.automaton.regexes();
  return WalkBelow(
      trie, 0, regex, [&pool](Regex at, uint8_t byte) { return pool.Derive(at, byte); },
      [&](int32_t node, Regex at) {
        AddTokensAt(trie, node, inside);
        if (!pool.nullable(at) || trie.ends[node] == node + 1) return;
        result->too_many_exits |= result->exits.size() == kMaxExits;
        if (!result->too_many_exits) result->exits.push_back({&trie, node});
      });
}

// Returns null if the walk gave up.
TokenWalk::Part TokenWalk::Examine(Regex regex) {
  auto result = std::make_shared<ExpressionTokens>();
  TokenMask inside(trie_->vocab_size());
  if (!WalkExpression(trie_->others(), regex, &inside, result.get())) return nullptr;
  bool contains = true;  // as in WalkTries
  for (int32_t i = 0; i < static_cast<int32_t>(trie_->slices().size()); ++i) {
    const TokenTrie::Slice& slice = trie_->slices()[i];
    if (slice.trie.tokens.empty()) continue;
    contains = contains && ContainsSlice(regex, i);
    if (contains) {
      inside.Add(slice.tokens);  // all of its tokens, so exits would add none
    } else if (!WalkExpression(slice.trie, regex, &inside, result.get())) {
      return nullptr;
    }
  }
  if (result->too_many_exits) {
    result->exits = {};
  } else if (inside.Count() <= trie_->vocab_size() / 32) {
    inside.AppendIds(&result->few);
  } else {
    result->inside = std::move(inside);
  }
  return result;
}

// Adds the tokens of an expression that `stack` follows.
bool TokenWalk::AddPart(const ExpressionTokens& part, int32_t stack, TokenMask* mask) {
  if (part.inside.size() > 0) mask->Add(part.inside);
  for (const int32_t id : part.few) mask->Set(id);
  if (part.exits.empty()) return true;
  const State after = shared_.automaton.After(stack);
  for (const ExpressionTokens::Exit& exit : part.exits) {
    if (!WalkTrie(*exit.trie, exit.node, after, mask)) return false;
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
    if (next << shift >= trie_->vocab_size()) break;
    const State after = shared_.automaton.Step(state, static_cast<uint8_t>(digit));
    if (after != kDead) WalkTerms(after, static_cast<int32_t>(next), digits + 1, mask);
  }
}

bool TokenWalk::AnyContainsSlice(State state, int32_t slice) {
  for (const Automaton::Thread& thread : shared_.automaton.threads(state)) {
    if (ContainsSlice(thread.regex, slice)) return true;
  }
  return false;
}

bool TokenWalk::ContainsSlice(Regex regex, int32_t slice) {
  const int32_t free = shared_.automaton.regexes().FreeCharacters(regex);
  if (free > 0) return free >= kSliceCharacters[slice];
  const auto [entry, added] = shared_.contains.try_emplace({slice, regex}, false);
  if (added) entry->second = Contains(regex, shared_.slices[slice]);
  return entry->second;
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
