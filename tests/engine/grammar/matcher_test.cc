#include "engine/grammar/matcher.h"

#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/engine/grammar/grammar_cases.h"

namespace tidepool::engine::grammar {
namespace {

// Returns all single bytes, and longer tokens as real vocabularies have them. The last token is a
// stop token.
std::vector<std::string> VocabularyTexts() {
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
  for (const char* text : {"ab",       "abc",       "abcdef",   "yes",        "no",
                           "\": ",     "\",",       "\", \"",   "{\"",        "\"}",
                           "}}",       "[\"",       "],",       "\"name\"",   "name\":",
                           " \"",      "12",        "123",      "0.",         "00",
                           "true",     "null",      "fal",      "\\u00",      "\\n",
                           "\xC3\xA9", "\xC3\xA9x", "\xF0\x9F", "\x98\x80\"", "((",
                           "))",       ")*",        "+(",       "a, b",       "\n  ",
                           "  ",       "k\":",      "i\",",     "7,",         " 7",
                           "aa",       "bc",        "-1",       "Abc",        "item number one",
                           "ab"}) {
    texts.emplace_back(text);
  }
  texts.emplace_back();
  return texts;
}

struct Vocabulary {
  std::vector<std::string> texts = VocabularyTexts();
  int32_t stop = static_cast<int32_t>(texts.size()) - 1;
  std::shared_ptr<const TokenTrie> trie =
      std::make_shared<const TokenTrie>(texts, absl::MakeConstSpan(&stop, 1));
};

TokenMask MaskOf(Matcher* matcher, const Vocabulary& vocabulary) {
  TokenMask mask(vocabulary.trie->vocab_size());
  matcher->FillMask(&mask);
  return mask;
}

TokenMask BruteForce(const Matcher& matcher, const Vocabulary& vocabulary) {
  TokenMask mask(vocabulary.trie->vocab_size());
  for (int32_t id = 0; id < mask.size(); ++id) {
    Matcher fork = matcher;
    if (fork.AcceptToken(id)) mask.Set(id);
  }
  return mask;
}

int32_t RandomToken(const TokenMask& mask, std::mt19937* random) {
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < mask.size(); ++id) {
    if (mask.Test(id)) ids.push_back(id);
  }
  return ids[(*random)() % ids.size()];
}

TEST(MatcherTest, AcceptsTheTextsOfTheCases) {
  for (const GrammarCase& one : GrammarCases()) {
    const auto grammar = CompileGrammar(one.source, nullptr);
    ASSERT_TRUE(grammar.ok()) << grammar.status();
    for (const std::string& text : one.texts) {
      EXPECT_TRUE(Accepts(*grammar, text)) << text;
      EXPECT_FALSE(Accepts(*grammar, text + "\x01")) << text;
    }
  }
}

TEST(MatcherTest, MasksEqualTryingEachToken) {
  const Vocabulary vocabulary;
  std::mt19937 random(1);
  for (const GrammarCase& one : GrammarCases()) {
    const auto grammar = Compiled(one.source);
    for (int walk = 0; walk < 20; ++walk) {
      Matcher matcher(grammar, vocabulary.trie);
      for (int step = 0; step < 25; ++step) {
        const TokenMask mask = MaskOf(&matcher, vocabulary);
        ASSERT_EQ(mask, BruteForce(matcher, vocabulary)) << one.texts[0] << ", step " << step;
        ASSERT_GT(mask.Count(), 0) << "a dead end: " << one.texts[0];
        ASSERT_EQ(mask.Test(vocabulary.stop), matcher.accepts());
        const int32_t id = RandomToken(mask, &random);
        if (id == vocabulary.stop) break;
        ASSERT_TRUE(matcher.AcceptToken(id));
      }
    }
  }
}

TEST(MatcherTest, RollbackAndForksRestoreTheMask) {
  const Vocabulary vocabulary;
  std::mt19937 random(2);
  for (const GrammarCase& one : GrammarCases()) {
    const auto grammar = Compiled(one.source);
    Matcher matcher(grammar, vocabulary.trie);
    std::vector<TokenMask> masks = {MaskOf(&matcher, vocabulary)};
    for (int step = 0; step < 12; ++step) {
      const int32_t id = RandomToken(masks.back(), &random);
      ASSERT_TRUE(matcher.AcceptToken(id));
      if (id == vocabulary.stop) {
        matcher.Rollback(1);
        break;
      }
      masks.push_back(MaskOf(&matcher, vocabulary));
    }
    const Matcher fork = matcher;
    while (matcher.steps() > 0) {
      matcher.Rollback(1);
      masks.pop_back();
      EXPECT_EQ(MaskOf(&matcher, vocabulary), masks.back());
    }
    Matcher copy = fork;
    EXPECT_EQ(MaskOf(&copy, vocabulary), BruteForce(fork, vocabulary));
  }
}

TEST(MatcherTest, AFullAutomatonIsReplacedWithoutAnyChange) {
  const Vocabulary vocabulary;
  const auto grammar = Compiled(Schema(R"({"type": "string", "maxLength": 400})"));
  Matcher matcher(grammar, vocabulary.trie);
  ASSERT_TRUE(matcher.AcceptToken('"'));
  for (int step = 0; step < 300; ++step) ASSERT_TRUE(matcher.AcceptToken('a' + step % 26));
  const TokenMask before = MaskOf(&matcher, vocabulary);
  grammar->Replace(grammar->automaton().get());
  Matcher other(grammar, vocabulary.trie);
  ASSERT_TRUE(other.AcceptToken('"'));
  for (int step = 0; step < 300; ++step) ASSERT_TRUE(other.AcceptToken('a' + step % 26));
  EXPECT_EQ(MaskOf(&other, vocabulary), before);
}

TEST(MatcherTest, ExpressionsOfMasksCountAsStored) {
  const Vocabulary vocabulary;
  const auto grammar =
      Compiled(Schema(R"({"type": "string", "pattern": "^(a|b.)*$", "maxLength": 5000})"));
  Matcher matcher(grammar, vocabulary.trie);
  ASSERT_TRUE(matcher.AcceptToken('"'));
  const auto stored = [&] {
    const std::shared_ptr<SharedAutomaton> shared = grammar->automaton();
    const AutomatonLock lock(shared.get());
    return shared->automaton.stored_bytes();
  };
  const size_t before = stored();
  MaskOf(&matcher, vocabulary);
  EXPECT_GT(stored(), before + 5000);
}

TEST(MatcherTest, NothingFollowsAStopToken) {
  const Vocabulary vocabulary;
  Matcher matcher(Compiled(Choice({"a", "ab"})), vocabulary.trie);
  EXPECT_FALSE(matcher.AcceptToken(vocabulary.stop));
  ASSERT_TRUE(matcher.AcceptToken('a'));
  ASSERT_TRUE(matcher.AcceptToken(vocabulary.stop));
  EXPECT_EQ(MaskOf(&matcher, vocabulary).Count(), 0);
  EXPECT_FALSE(matcher.AcceptToken('b'));
}

TEST(MatcherTest, TheOnlyTokenIsVisible) {
  const Vocabulary vocabulary;
  Matcher matcher(Compiled(RegexSource("[xyz]q")), vocabulary.trie);
  EXPECT_EQ(MaskOf(&matcher, vocabulary).Only(), std::nullopt);
  ASSERT_TRUE(matcher.AcceptToken('x'));
  EXPECT_EQ(MaskOf(&matcher, vocabulary).Only(), 'q');
  ASSERT_TRUE(matcher.AcceptToken('q'));
  EXPECT_EQ(MaskOf(&matcher, vocabulary).Only(), vocabulary.stop);
}

TEST(MatcherTest, AMaskThatWasGivenUpCanBeComputedLater) {
  const Vocabulary vocabulary;
  const auto grammar = Compiled(RegexSource("[xyz]q"));
  Matcher matcher(grammar, vocabulary.trie);
  TokenMask mask(vocabulary.trie->vocab_size());
  EXPECT_FALSE(matcher.TryFillMask(&mask, [] { return true; }));
  Matcher other(Compiled(RegexSource("[xyz]q")), vocabulary.trie);
  EXPECT_EQ(MaskOf(&matcher, vocabulary), MaskOf(&other, vocabulary));
}

// A thread that computes a long mask holds the lock only for parts of it.
TEST(MatcherTest, AThreadThatComputesAMaskLetsOthersIn) {
  const auto shared = Compiled(Choice({"a"}))->automaton();
  std::atomic<bool> was_in = false;
  shared->mutex.Lock();
  std::thread other([&] {
    const AutomatonLock lock(shared.get());
    was_in = true;
  });
  while (!was_in) shared->LetOthersIn();
  shared->mutex.Unlock();
  other.join();
}

}  // namespace
}  // namespace tidepool::engine::grammar
