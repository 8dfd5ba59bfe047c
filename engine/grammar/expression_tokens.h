// ExpressionTokens: what one regular expression says about the tokens of a vocabulary, whatever
// follows it in a grammar. States of an automaton that differ only in their stacks share it: for
// example, the places inside of the strings of all elements of an array. (XGrammar 2024,
// arXiv 2411.15100, divides tokens in a similar way.)
#ifndef TIDEPOOL_ENGINE_GRAMMAR_EXPRESSION_TOKENS_H_
#define TIDEPOOL_ENGINE_GRAMMAR_EXPRESSION_TOKENS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/grammar/token_mask.h"
#include "engine/grammar/token_trie.h"

namespace tidepool::engine::grammar {

struct ExpressionTokens {
  // A node of a trie such that the text up to it is a text of the expression, and longer tokens
  // exist.
  struct Exit {
    const TokenTrie::Trie* trie;
    int32_t node;
  };

  // An estimate of the bytes that are stored.
  size_t stored_bytes() const {
    return sizeof(*this) + inside.words().size() * 8 + few.size() * sizeof(few[0]) +
           exits.size() * sizeof(Exit);
  }

  // The tokens that begin a text of the expression: in `few`, or if they are many, in `inside`.
  TokenMask inside;
  std::vector<int32_t> few;
  // The tokens that continue after the end of the expression are below these nodes. A token may be
  // in both sets.
  std::vector<Exit> exits;
  // Whether there are more exits than are stored. Then a walk over the tries is faster, and the
  // other fields are empty.
  bool too_many_exits = false;
};

}  // namespace tidepool::engine::grammar

#endif  // TIDEPOOL_ENGINE_GRAMMAR_EXPRESSION_TOKENS_H_
