#include "engine/grammar/automaton.h"

#include <algorithm>

#include "kernels/base/background_task.h"
#include "kernels/base/check.h"

namespace tidepool::engine::grammar {

Automaton::Automaton(const GrammarIr& ir) : ir_(ir), compiled_(ir.regexes().stored()) {
  states_.push_back({.row = 0});
  rows_.assign(ir_.regexes().classes(), kDead);
  const Frame end = {kEnd, -1};
  const int32_t bottom = Stack({&end, 1});
  Draft draft;
  AddPending(ir_.start(), bottom, &draft);
  if (ir_.node(ir_.start()).nullable) Pop(bottom, &draft);
  start_ = Close(&draft);
}

int32_t Automaton::Stack(absl::Span<const Frame> frames) {
  const uint64_t hash = absl::HashOf(frames);
  const auto number = static_cast<int32_t>(stacks_.size());
  const auto [entry, added] = stacks_by_hash_.try_emplace(hash, number);
  int32_t next = -1;
  if (!added) {
    for (int32_t at = entry->second; at >= 0; at = stacks_[at].next) {
      if (this->frames(at) == frames) return at;
    }
    next = entry->second;
    entry->second = number;
  }
  stacks_.push_back({.first = static_cast<int32_t>(frames_.size()),
                     .count = static_cast<int32_t>(frames.size()),
                     .next = next});
  frames_.insert(frames_.end(), frames.begin(), frames.end());
  return number;
}

int32_t Automaton::Push(Expr expr, int32_t stack) {
  if (expr == kEmptyExpr) return stack;
  const Frame frame = {expr, stack};
  return Stack({&frame, 1});
}

// If the merges of the stacks below `a` and `b` are known, merges `a` and `b`. Otherwise appends
// the unknown merges to `needed`, and returns false.
bool Automaton::MergeOnce(int32_t a, int32_t b, std::vector<std::pair<int32_t, int32_t>>* needed) {
  std::vector<Frame> merged;
  const absl::Span<const Frame> left = frames(a), right = frames(b);
  size_t i = 0, j = 0;
  bool complete = true;
  while (i < left.size() || j < right.size()) {
    if (j == right.size() || (i < left.size() && left[i].expr < right[j].expr)) {
      merged.push_back(left[i++]);
    } else if (i == left.size() || right[j].expr < left[i].expr) {
      merged.push_back(right[j++]);
    } else {
      Frame frame = left[i++];
      const int32_t other = right[j++].stack;
      if (frame.stack != other) {
        const std::pair<int32_t, int32_t> pair = std::minmax(frame.stack, other);
        const auto found = merged_.find(pair);
        if (found == merged_.end()) {
          needed->push_back(pair);
          complete = false;
        } else {
          frame.stack = found->second;
        }
      }
      merged.push_back(frame);
    }
  }
  if (!complete) return false;
  const int32_t result = Stack(merged);
  merged_[{a, b}] = result;
  return true;
}

// Not recursive, because a stack can be deep.
int32_t Automaton::Merge(int32_t a, int32_t b) {
  if (a == b) return a;
  const std::pair<int32_t, int32_t> pair = std::minmax(a, b);
  std::vector<std::pair<int32_t, int32_t>> needed = {pair};
  while (!needed.empty()) {
    const std::pair<int32_t, int32_t> top = needed.back();
    if (merged_.contains(top) || MergeOnce(top.first, top.second, &needed)) needed.pop_back();
  }
  return merged_.at(pair);
}

void Automaton::AddThread(Regex regex, int32_t stack, Draft* draft) {
  if (regex == kEmptyRegex) return;
  const auto [entry, added] = draft->threads.try_emplace(regex, stack);
  if (!added) entry->second = Merge(entry->second, stack);
}

// Adds `expr`, followed by `stack`, to the expressions that begin here. If `expr` matches the empty
// text, the caller must also continue with `stack`.
void Automaton::AddPending(Expr expr, int32_t stack, Draft* draft) {
  const GrammarIr::Node& node = ir_.node(expr);
  if (!node.productive) return;
  const auto [entry, added] = draft->pending.try_emplace({-node.rank, expr}, stack);
  if (!added) entry->second = Merge(entry->second, stack);
}

void Automaton::Pop(int32_t stack, Draft* draft) {
  std::vector<int32_t> left = {stack};
  while (!left.empty()) {
    const int32_t top = left.back();
    left.pop_back();
    if (!draft->popped.insert(top).second) continue;
    const std::vector<Frame> all(frames(top).begin(), frames(top).end());
    for (const Frame& frame : all) {
      if (frame.expr == kEnd) {
        draft->accepts = true;
        continue;
      }
      AddPending(frame.expr, frame.stack, draft);
      if (ir_.node(frame.expr).nullable) left.push_back(frame.stack);
    }
  }
}

void Automaton::Expand(Expr expr, int32_t stack, Draft* draft) {
  const GrammarIr::Node node = ir_.node(expr);
  switch (node.kind) {
    case GrammarIr::Kind::kNothing:
    case GrammarIr::Kind::kEmpty:
      break;
    case GrammarIr::Kind::kMatch:
      AddThread(node.x, stack, draft);
      break;
    case GrammarIr::Kind::kSeq:
      AddPending(node.x, Push(node.y, stack), draft);
      if (ir_.node(node.x).nullable) AddPending(node.y, stack, draft);
      break;
    case GrammarIr::Kind::kAlt:
      for (const Expr kid : ir_.kids(node)) AddPending(kid, stack, draft);
      break;
    case GrammarIr::Kind::kRepeat: {
      const int32_t max = node.z == kNoLimit ? kNoLimit : node.z - 1;
      const Expr others = ir_.Repeat(node.x, std::max(node.y - 1, 0), max);
      AddPending(node.x, Push(others, stack), draft);
      break;
    }
    case GrammarIr::Kind::kRule:
      AddPending(ir_.body(node.x), stack, draft);
      break;
  }
}

State Automaton::Close(Draft* draft) {
  // The ranks put an expression before all expressions with which its texts can begin. So each
  // expression is expanded once, with its complete stack.
  while (!draft->pending.empty()) {
    const auto first = draft->pending.begin();
    const Expr expr = first->first.second;
    const int32_t stack = first->second;
    draft->pending.erase(first);
    Expand(expr, stack, draft);
  }
  if (draft->threads.empty() && !draft->accepts) return kDead;
  std::vector<Thread> threads;
  for (const auto& [regex, stack] : draft->threads) threads.push_back({regex, stack});
  const uint64_t hash = absl::HashOf(threads, draft->accepts);
  const auto number = static_cast<int32_t>(states_.size());
  const auto [entry, added] = states_by_hash_.try_emplace(hash, number);
  int32_t next = -1;
  if (!added) {
    for (int32_t at = entry->second; at >= 0; at = states_[at].next) {
      if (states_[at].accepts == draft->accepts &&
          this->threads(at) == absl::MakeConstSpan(threads)) {
        return at;
      }
    }
    next = entry->second;
    entry->second = number;
  }
  states_.push_back({.first = static_cast<int32_t>(threads_.size()),
                     .count = static_cast<int32_t>(threads.size()),
                     .next = next,
                     .accepts = draft->accepts});
  threads_.insert(threads_.end(), threads.begin(), threads.end());
  return number;
}

State Automaton::Compute(State state, int32_t byte_class) {
  base::LetOthersRun();
  if (states_[state].row < 0) {
    states_[state].row = static_cast<int32_t>(rows_.size());
    rows_.resize(rows_.size() + ir_.regexes().classes(), -1);
  }
  Draft draft;
  const int32_t end = states_[state].first + states_[state].count;
  for (int32_t i = states_[state].first; i < end; ++i) {
    const Thread thread = threads_[i];
    const Regex rest = ir_.regexes().DeriveClass(thread.regex, byte_class);
    if (rest == kNoRegex) continue;
    if (ir_.regexes().nullable(rest)) Pop(thread.stack, &draft);
    AddThread(rest, thread.stack, &draft);
  }
  const State result = Close(&draft);
  rows_[states_[state].row + byte_class] = result;
  return result;
}

State Automaton::After(int32_t stack) {
  const auto [entry, added] = after_.try_emplace(stack, kDead);
  if (!added) return entry->second;
  base::LetOthersRun();
  Draft draft;
  Pop(stack, &draft);
  return entry->second = Close(&draft);
}

State Automaton::Union(State a, State b) {
  if (a == b || b == kDead) return a;
  if (a == kDead) return b;
  Draft draft;
  draft.accepts = accepts(a) || accepts(b);
  for (const State state : {a, b}) {
    const int32_t end = states_[state].first + states_[state].count;
    for (int32_t i = states_[state].first; i < end; ++i) {
      AddThread(threads_[i].regex, threads_[i].stack, &draft);
    }
  }
  return Close(&draft);
}

size_t Automaton::stored_bytes() const {
  const size_t derived = ir_.regexes().stored() - std::min(compiled_, ir_.regexes().stored());
  return 40 * (derived + ir_.size() + stacks_.size() + states_.size() + merged_.size() +
               after_.size()) +
         8 * (frames_.size() + threads_.size()) + 4 * rows_.size();
}

}  // namespace tidepool::engine::grammar
