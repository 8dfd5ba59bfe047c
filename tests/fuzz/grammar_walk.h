// Walks through a grammar and checks what must be true for every grammar.
#ifndef TIDEPOOL_TESTS_FUZZ_GRAMMAR_WALK_H_
#define TIDEPOOL_TESTS_FUZZ_GRAMMAR_WALK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/grammar/compile.h"
#include "engine/grammar/matcher.h"
#include "kernels/base/check.h"

namespace tidepool::fuzz {

inline std::shared_ptr<const engine::grammar::TokenTrie> WalkTrie() {
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
  for (const char* text : {"{\"", "\":", "ab", "true", "\", \"", "12", "}]"})
    texts.emplace_back(text);
  texts.emplace_back();
  const auto stop = static_cast<int32_t>(texts.size()) - 1;
  return std::make_shared<const engine::grammar::TokenTrie>(texts, absl::MakeConstSpan(&stop, 1));
}

// The text of a walk. `ended`: the last token was the stop token.
struct Walked {
  std::string text;
  bool ended = false;
};

// Walks through the grammar. Checks that every state has a next token, and that the matcher accepts
// exactly the tokens of the mask. `choices` selects the tokens.
inline Walked WalkGrammar(std::shared_ptr<const engine::grammar::Grammar> grammar,
                          absl::string_view choices, size_t max_steps) {
  using engine::grammar::Matcher;
  using engine::grammar::TokenMask;
  static const auto* trie = new std::shared_ptr<const engine::grammar::TokenTrie>(WalkTrie());
  Matcher matcher(std::move(grammar), *trie);
  TokenMask mask((*trie)->vocab_size());
  Walked walked;
  uint32_t state = 1;
  for (size_t step = 0; step < max_steps && !walked.ended; ++step) {
    matcher.FillMask(&mask);
    const int32_t count = mask.Count();
    CHECK(count > 0) << "a dead end after " << step << " tokens";
    const auto own = step < choices.size() ? static_cast<uint8_t>(choices[step]) : 0;
    state = state * 1664525 + 1013904223 + own;
    int32_t left = static_cast<int32_t>((state >> 8) % static_cast<uint32_t>(count));
    int32_t id = 0;
    while (!mask.Test(id) || left-- > 0) ++id;
    const int32_t other = static_cast<int32_t>(state % static_cast<uint32_t>(mask.size()));
    Matcher fork = matcher;
    CHECK(fork.AcceptToken(other) == mask.Test(other)) << other;
    CHECK(matcher.AcceptToken(id));
    absl::StrAppend(&walked.text, (*trie)->text(id));
    walked.ended = (*trie)->IsStop(id);
  }
  return walked;
}

// Checks that the error is INVALID_ARGUMENT with a message of one line.
inline void CheckError(const absl::Status& error) {
  CHECK(absl::IsInvalidArgument(error)) << error.ToString();
  CHECK(!error.message().empty());
  CHECK(!absl::StrContains(error.message(), "\n"));
}

inline void CheckGrammar(const engine::grammar::GrammarSource& source, absl::string_view choices) {
  auto grammar = engine::grammar::CompileGrammar(source, nullptr);
  if (!grammar.ok()) return CheckError(grammar.status());
  WalkGrammar(*std::move(grammar), choices, /*max_steps=*/24);
}

}  // namespace tidepool::fuzz

#endif  // TIDEPOOL_TESTS_FUZZ_GRAMMAR_WALK_H_
