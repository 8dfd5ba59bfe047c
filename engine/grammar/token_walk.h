// TokenWalk: finds all tokens that may come after a state.
#ifndef TIDEPOOL_ENGINE_GRAMMAR_TOKEN_WALK_H_
#define TIDEPOOL_ENGINE_GRAMMAR_TOKEN_WALK_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/token_mask.h"
#include "engine/grammar/token_trie.h"

namespace tidepool::engine::grammar {

// Thread-compatible.
class TokenWalk {
 public:
  TokenWalk(const TokenTrie& trie, SharedAutomaton* shared) : trie_(trie), shared_(*shared) {}

  // Adds the tokens to `mask`. Calls `give_up` repeatedly. If `give_up` returns true, returns
  // false, and the mask is not complete. Requires: state != kDead.
  bool Run(State state, TokenMask* mask, absl::FunctionRef<bool()> give_up)
      TIDEPOOL_EXCLUDES(shared_.mutex);

 private:
  bool Walk(const TokenTrie::Trie& trie, State state, TokenMask* mask,
            absl::FunctionRef<bool()> give_up) TIDEPOOL_REQUIRES(shared_.mutex);
  void WalkTerms(State state, int32_t prefix, int digits, TokenMask* mask)
      TIDEPOOL_REQUIRES(shared_.mutex);
  bool ContainsSlice(State state, int32_t slice) TIDEPOOL_REQUIRES(shared_.mutex);
  bool Contains(Regex regex, Regex texts) TIDEPOOL_REQUIRES(shared_.mutex);

  const TokenTrie& trie_;
  SharedAutomaton& shared_;
  std::vector<State> path_;
};

}  // namespace tidepool::engine::grammar

#endif  // TIDEPOOL_ENGINE_GRAMMAR_TOKEN_WALK_H_
