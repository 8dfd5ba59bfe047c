// TokenWalk: finds all tokens that may come after a state.
#ifndef TIDEPOOL_ENGINE_GRAMMAR_TOKEN_WALK_H_
#define TIDEPOOL_ENGINE_GRAMMAR_TOKEN_WALK_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "engine/grammar/expression_tokens.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/token_mask.h"
#include "engine/grammar/token_trie.h"

namespace tidepool::engine::grammar {

// Thread-compatible.
class TokenWalk {
 public:
  // Calls `give_up` repeatedly. If `give_up` returns true, the walk ends.
  TokenWalk(std::shared_ptr<const TokenTrie> trie, SharedAutomaton* shared,
            absl::FunctionRef<bool()> give_up)
      : trie_(std::move(trie)), shared_(*shared), give_up_(give_up) {}

  // Adds the tokens to `mask`. Returns false if the walk gave up; then the mask is not complete.
  // Requires: state != kDead.
  bool Run(State state, TokenMask* mask) TIDEPOOL_EXCLUDES(shared_.mutex);

 private:
  using Part = std::shared_ptr<const ExpressionTokens>;

  bool WalkTries(State state, TokenMask* mask) TIDEPOOL_REQUIRES(shared_.mutex);
  bool WalkTrie(const TokenTrie::Trie& trie, int32_t root, State state, TokenMask* mask)
      TIDEPOOL_REQUIRES(shared_.mutex);
  template <typename Step, typename Visit>
  bool WalkBelow(const TokenTrie::Trie& trie, int32_t root, int32_t state, Step step, Visit visit)
      TIDEPOOL_REQUIRES(shared_.mutex);
  void WalkTerms(State state, int32_t prefix, int digits, TokenMask* mask)
      TIDEPOOL_REQUIRES(shared_.mutex);
  bool FindParts(absl::Span<const Automaton::Thread> threads, std::vector<Part>* parts)
      TIDEPOOL_REQUIRES(shared_.mutex);
  Part Examine(Regex regex) TIDEPOOL_REQUIRES(shared_.mutex);
  bool WalkExpression(const TokenTrie::Trie& trie, Regex regex, TokenMask* inside,
                      ExpressionTokens* result) TIDEPOOL_REQUIRES(shared_.mutex);
  bool AddPart(const ExpressionTokens& part, int32_t stack, TokenMask* mask)
      TIDEPOOL_REQUIRES(shared_.mutex);
  bool AnyContainsSlice(State state, int32_t slice) TIDEPOOL_REQUIRES(shared_.mutex);
  bool ContainsSlice(Regex regex, int32_t slice) TIDEPOOL_REQUIRES(shared_.mutex);
  bool Contains(Regex regex, Regex texts) TIDEPOOL_REQUIRES(shared_.mutex);

  const std::shared_ptr<const TokenTrie> trie_;
  SharedAutomaton& shared_;
  const absl::FunctionRef<bool()> give_up_;
  std::vector<int32_t> path_;  // states or expressions, by depth
  int32_t visited_ = 0;        // number of nodes
};

}  // namespace tidepool::engine::grammar

#endif  // TIDEPOOL_ENGINE_GRAMMAR_TOKEN_WALK_H_
