// Grammar: a compiled constraint for output. Matchers run it.
#ifndef TIDEPOOL_ENGINE_GRAMMAR_GRAMMAR_H_
#define TIDEPOOL_ENGINE_GRAMMAR_GRAMMAR_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/grammar/automaton.h"
#include "engine/grammar/expression_tokens.h"
#include "engine/grammar/grammar_ir.h"
#include "engine/grammar/token_trie.h"
#include "kernels/base/background_task.h"
#include "kernels/base/mutex.h"

namespace tidepool::engine::grammar {

// The automaton of a grammar, and the masks of its states. Matchers of one grammar share it.
struct SharedAutomaton {
  // If the ExpressionTokens need more bytes than this, they are forgotten.
  static constexpr size_t kMaxExpressionBytes = 8 << 20;

  SharedAutomaton(const GrammarIr& ir, absl::Span<const Regex> slice_texts)
      : automaton(ir), slices(slice_texts.begin(), slice_texts.end()) {}

  // If other threads wait for the automaton or for the CPU, lets them have it before this returns.
  // States stay valid.
  void LetOthersIn() TIDEPOOL_REQUIRES(mutex) {
    if (waiting == 0 && !base::TurnIsOver()) return;
    mutex.Unlock();
    while (waiting > 0) std::this_thread::yield();
    base::LetOthersRun();
    mutex.Lock();
  }

  // Forgets what is stored for another vocabulary.
  void SetVocabulary(const std::shared_ptr<const TokenTrie>& trie) TIDEPOOL_REQUIRES(mutex) {
    if (vocabulary == trie) return;
    vocabulary = trie;
    masks.clear();
    expressions.clear();
    expression_bytes = 0;
  }
  void StoreExpression(Regex regex, std::shared_ptr<const ExpressionTokens> tokens)
      TIDEPOOL_REQUIRES(mutex) {
    if (expression_bytes > kMaxExpressionBytes) {
      expressions.clear();
      expression_bytes = 0;
    }
    expression_bytes += tokens->stored_bytes();
    expressions[regex] = std::move(tokens);
  }

  base::Mutex mutex;
  std::atomic<int32_t> waiting = 0;  // number of AutomatonLocks that wait
  Automaton automaton TIDEPOOL_GUARDED_BY(mutex);
  const std::vector<Regex> slices;  // the texts of each slice of a TokenTrie
  // By slice and expression: whether every text of the slice may come next in the expression.
  absl::flat_hash_map<std::pair<int32_t, Regex>, bool> contains TIDEPOOL_GUARDED_BY(mutex);
  std::shared_ptr<const TokenTrie> vocabulary TIDEPOOL_GUARDED_BY(mutex);
  // The masks of some states, for `vocabulary`.
  absl::flat_hash_map<State, TokenMask> masks TIDEPOOL_GUARDED_BY(mutex);
  // What is known about expressions of threads, for `vocabulary`.
  absl::flat_hash_map<Regex, std::shared_ptr<const ExpressionTokens>> expressions
      TIDEPOOL_GUARDED_BY(mutex);
  size_t expression_bytes TIDEPOOL_GUARDED_BY(mutex) = 0;
};

// Locks the automaton. A thread that computes a mask releases the lock from time to time
// (LetOthersIn), so the wait is short.
class TIDEPOOL_SCOPED_LOCK AutomatonLock {
 public:
  explicit AutomatonLock(SharedAutomaton* shared) TIDEPOOL_ACQUIRE(shared->mutex)
      : shared_(*shared) {
    ++shared_.waiting;
    shared_.mutex.Lock();
    --shared_.waiting;
  }
  ~AutomatonLock() TIDEPOOL_RELEASE() { shared_.mutex.Unlock(); }
  AutomatonLock(const AutomatonLock&) = delete;
  AutomatonLock& operator=(const AutomatonLock&) = delete;

 private:
  SharedAutomaton& shared_;
};

// Thread-safe.
class Grammar {
 public:
  // Requires: ir.Finish() returned OK.
  explicit Grammar(GrammarIr ir);

  // Returns the automaton for new matchers.
  std::shared_ptr<SharedAutomaton> automaton() const;
  // Returns an automaton that replaces `full`, which has stored too much.
  std::shared_ptr<SharedAutomaton> Replace(const SharedAutomaton* full) const;

 private:
  std::shared_ptr<SharedAutomaton> Fresh() const;

  GrammarIr ir_;
  std::vector<Regex> slices_;
  mutable base::Mutex mutex_;
  mutable std::shared_ptr<SharedAutomaton> automaton_ TIDEPOOL_GUARDED_BY(mutex_);
};

}  // namespace tidepool::engine::grammar

#endif  // TIDEPOOL_ENGINE_GRAMMAR_GRAMMAR_H_
