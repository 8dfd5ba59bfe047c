// Matcher: follows one output through a grammar.
//
//   Matcher matcher(grammar, trie);
//   TokenMask mask(trie->vocab_size());
//   matcher.FillMask(&mask);               // the tokens that may come first
//   CHECK(matcher.AcceptToken(id));        // one of them
//   Matcher fork = matcher;                // an independent copy
//   matcher.Rollback(1);
//
// The state depends only on the tokens that were accepted, so replaying them restores it.
#ifndef TIDEPOOL_ENGINE_GRAMMAR_MATCHER_H_
#define TIDEPOOL_ENGINE_GRAMMAR_MATCHER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/token_mask.h"
#include "engine/grammar/token_trie.h"

namespace tidepool::engine::grammar {

// Thread-compatible. Matchers of one grammar may run in different threads. Copies are independent.
class Matcher {
 public:
  // `trie` may be null for a matcher that only reads text.
  Matcher(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie);

  // Adds a token to the output. Returns false, and changes nothing, if the grammar does not allow
  // it. After a stop token nothing is allowed. Requires: a trie, and an id of its vocabulary.
  bool AcceptToken(int32_t id);
  // Adds the longest prefix of `text` that the grammar allows, as one step. Returns its size.
  size_t AcceptText(absl::string_view text);
  // Removes the last steps. Requires: steps <= this->steps().
  void Rollback(size_t steps);
  size_t steps() const { return log_.size(); }

  // Returns whether the output is complete: the grammar accepts it.
  bool accepts() const;
  // Returns whether the output is complete and nothing can be added to it.
  bool complete() const;
  // Sets the bits of the tokens that may come next. Stop tokens may come if the output is complete.
  // The mask is never empty before a stop token if the vocabulary has a token for every byte.
  // Requires: a trie, and a mask of its vocabulary's size.
  void FillMask(TokenMask* mask);
  // Like FillMask, but calls `give_up` repeatedly. If `give_up` returns true, returns false, and
  // the mask is undefined.
  bool TryFillMask(TokenMask* mask, absl::FunctionRef<bool()> give_up);

 private:
  struct Step {
    int32_t token = -1;  // -1: `text` was added
    std::string text;
    State state = kDead;  // after the step
    bool ends = false;    // a stop token after complete output
  };

  State state() const { return log_.empty() ? start_ : log_.back().state; }
  void Attach(std::shared_ptr<SharedAutomaton> shared);
  void RenewIfFull();

  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<const TokenTrie> trie_;
  std::shared_ptr<SharedAutomaton> shared_;
  State start_ = kDead;
  std::vector<Step> log_;
};

}  // namespace tidepool::engine::grammar

#endif  // TIDEPOOL_ENGINE_GRAMMAR_MATCHER_H_
