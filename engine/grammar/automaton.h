// Automaton: runs a grammar byte by byte.
//
// A state is a set of threads. A thread is a regular expression for the rest of its terminal, and a
// stack for what follows it. Stacks are shared. A stack is a set of frames. A frame has an
// expression and the stack below it. Threads with the same expression share one stack. So the
// number of threads is limited by the size of the grammar, for ambiguous grammars too. States,
// stacks and expressions are numbered when they first occur, and every transition is computed once.
// Every state can be completed to a text that the grammar accepts.
#ifndef TIDEPOOL_ENGINE_GRAMMAR_AUTOMATON_H_
#define TIDEPOOL_ENGINE_GRAMMAR_AUTOMATON_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "engine/grammar/grammar_ir.h"

namespace tidepool::engine::grammar {

using State = int32_t;
inline constexpr State kDead = 0;  // the grammar allows no text from here

// Thread-compatible. Step and the other functions that return states are not const, because they
// store what they compute.
class Automaton {
 public:
  struct Thread {
    Regex regex;
    int32_t stack;
    bool operator==(const Thread&) const = default;
    template <typename H>
    friend H AbslHashValue(H h, const Thread& t) {
      return H::combine(std::move(h), t.regex, t.stack);
    }
  };

  // Requires: ir.Finish() returned OK.
  explicit Automaton(const GrammarIr& ir);

  State start() const { return start_; }
  State Step(State state, uint8_t byte) {
    const int32_t row = states_[state].row;
    if (row >= 0) {
      const State known = rows_[row + ir_.regexes().class_of(byte)];
      if (known >= 0) return known;
    }
    return Compute(state, ir_.regexes().class_of(byte));
  }
  // Returns the state for the text that follows an expression of a thread with this stack.
  State After(int32_t stack);
  // Returns the state that accepts every text that `a` or `b` accepts.
  State Union(State a, State b);

  // Returns whether the grammar accepts the text that led to `state`.
  bool accepts(State state) const { return states_[state].accepts; }
  absl::Span<const Thread> threads(State state) const {
    return absl::MakeConstSpan(threads_).subspan(states_[state].first, states_[state].count);
  }
  RegexPool& regexes() { return ir_.regexes(); }

  // An estimate of the bytes that are stored.
  size_t stored_bytes() const;

 private:
  struct Frame {
    Expr expr;      // kEnd: the end of the text
    int32_t stack;  // the stack below this frame
    bool operator==(const Frame&) const = default;
    template <typename H>
    friend H AbslHashValue(H h, const Frame& f) {
      return H::combine(std::move(h), f.expr, f.stack);
    }
  };
  // A stack (a range of frames_) or a state (a range of threads_).
  struct Group {
    int32_t first = 0;
    int32_t count = 0;
    int32_t next = -1;  // the next group with the same hash
    int32_t row = -1;   // only for a state: index of its transitions in rows_
    bool accepts = false;
  };
  // The set of threads under construction.
  struct Draft {
    std::map<Regex, int32_t> threads;                     // stacks
    std::map<std::pair<int32_t, Expr>, int32_t> pending;  // stacks, by negative rank and expression
    absl::flat_hash_set<int32_t> popped;
    bool accepts = false;
  };
  static constexpr Expr kEnd = -1;

  int32_t Stack(absl::Span<const Frame> frames);
  int32_t Push(Expr expr, int32_t stack);
  int32_t Merge(int32_t a, int32_t b);
  bool MergeOnce(int32_t a, int32_t b, std::vector<std::pair<int32_t, int32_t>>* needed);
  absl::Span<const Frame> frames(int32_t stack) const {
    return absl::MakeConstSpan(frames_).subspan(stacks_[stack].first, stacks_[stack].count);
  }
  void AddThread(Regex regex, int32_t stack, Draft* draft);
  void AddPending(Expr expr, int32_t stack, Draft* draft);
  void Pop(int32_t stack, Draft* draft);
  void Expand(Expr expr, int32_t stack, Draft* draft);
  State Close(Draft* draft);
  State Compute(State state, int32_t byte_class);

  GrammarIr ir_;
  const size_t compiled_;  // size of the pool of expressions before any text was read
  std::vector<Frame> frames_;
  std::vector<Group> stacks_;
  absl::flat_hash_map<uint64_t, int32_t> stacks_by_hash_;
  absl::flat_hash_map<std::pair<int32_t, int32_t>, int32_t> merged_;
  std::vector<Thread> threads_;
  std::vector<Group> states_;
  absl::flat_hash_map<uint64_t, int32_t> states_by_hash_;
  absl::flat_hash_map<int32_t, State> after_;  // by stack
  std::vector<State> rows_;
  State start_ = kDead;
};

}  // namespace tidepool::engine::grammar

#endif  // TIDEPOOL_ENGINE_GRAMMAR_AUTOMATON_H_
