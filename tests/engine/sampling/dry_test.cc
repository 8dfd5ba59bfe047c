#include "engine/sampling/dry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/sampling/dry_breakers.h"
#include "tests/fakes/byte_tokenizer.h"

namespace tidepool::engine {
namespace {

std::vector<int32_t> Bytes(const std::string& text) { return {text.begin(), text.end()}; }

struct Dry {
  std::unique_ptr<Tokenizer> tokenizer = fakes::MakeByteTokenizer();
  DryBreakerCache cache{tokenizer.get()};
  DryPenalty penalty;
  SamplingParams params = {.dry_multiplier = 1, .dry_base = 2};

  // Returns the penalty of each token that has one.
  std::map<int32_t, float> Penalties(const std::vector<int32_t>& tokens) {
    DryHistory history(cache.Get(params.dry_sequence_breakers).value());
    for (const int32_t token : tokens) history.Add(token);
    std::vector<float> logits(tokenizer->vocab_size());
    penalty.Apply(params, history, tokens, absl::MakeSpan(logits));
    std::map<int32_t, float> penalties;
    for (size_t id = 0; id < logits.size(); ++id) {
      if (logits[id] != 0) penalties[static_cast<int32_t>(id)] = -logits[id];
    }
    return penalties;
  }
};

using Penalties = std::map<int32_t, float>;

TEST(DryTest, TheTokenThatContinuesARepetitionGetsAPenalty) {
  Dry dry;
  EXPECT_EQ(dry.Penalties(Bytes("abcd.abc")), (Penalties{{'d', 2.0f}}));
  EXPECT_EQ(dry.Penalties(Bytes("abcd.bc")), (Penalties{{'d', 1.0f}}));
  EXPECT_EQ(dry.Penalties(Bytes("abcd.c")), (Penalties{}));
  // Of several places with the same next token, the longest repetition counts.
  EXPECT_EQ(dry.Penalties(Bytes("abcd.bcd.bce.abc")), (Penalties{{'d', 2.0f}, {'e', 1.0f}}));
  // A repetition may overlap with itself.
  EXPECT_EQ(dry.Penalties(Bytes("aaaaa")), (Penalties{{'a', 4.0f}}));
  EXPECT_EQ(dry.Penalties({}), (Penalties{}));
}

TEST(DryTest, ParametersChangeThePenalty) {
  Dry dry;
  dry.params.dry_allowed_length = 4;
  EXPECT_EQ(dry.Penalties(Bytes("abcd.abc")), (Penalties{}));
  dry.params.dry_allowed_length = 1;
  dry.params.dry_base = 3;
  dry.params.dry_multiplier = 0.5f;
  EXPECT_EQ(dry.Penalties(Bytes("abcd.abc")), (Penalties{{'d', 4.5f}}));
  dry.params.dry_penalty_last_n = 7;
  EXPECT_EQ(dry.Penalties(Bytes("abcd.abc")), (Penalties{{'d', 1.5f}}));
  dry.params.dry_penalty_last_n = 4;
  EXPECT_EQ(dry.Penalties(Bytes("abcd.abc")), (Penalties{}));
  // Huge penalties stay finite.
  dry.params = {.dry_multiplier = 3e38f, .dry_base = 3e38f};
  const auto penalties = dry.Penalties(Bytes("abcdefgh.abcdefg"));
  ASSERT_EQ(penalties.size(), 1u);
  EXPECT_TRUE(std::isfinite(penalties.at('h')));
}

TEST(DryTest, BreakersEndRepetitions) {
  Dry dry;
  EXPECT_EQ(dry.Penalties(Bytes("ab:cde. ab:cd")), (Penalties{{'e', 1.0f}}));
  EXPECT_EQ(dry.Penalties(Bytes("abcd*. abcd")), (Penalties{}));  // breakers have no penalty
  dry.params.dry_sequence_breakers = {"END"};
  EXPECT_EQ(dry.Penalties(Bytes("abENDcde.abENDcd")), (Penalties{{'e', 1.0f}}));
  EXPECT_EQ(dry.Penalties(Bytes("abENcde.abENcd")), (Penalties{{'e', 16.0f}}));
  EXPECT_EQ(dry.Penalties(Bytes("xxEND.xxEND")), (Penalties{}));
  // Of breakers that begin with the same token, the longest counts.
  dry.params.dry_sequence_breakers = {"a"};
  EXPECT_EQ(dry.Penalties(Bytes("abcd.abc")), (Penalties{{'d', 1.0f}}));
  dry.params.dry_sequence_breakers = {"a", "ab"};
  EXPECT_EQ(dry.Penalties(Bytes("abcd.abc")), (Penalties{}));
}

// Compares with the definition, on random tokens with many repetitions.
TEST(DryTest, EqualsTheDefinition) {
  std::mt19937 random(5);
  for (int round = 0; round < 2000; ++round) {
    Dry dry;
    const int size = static_cast<int>(random() % 60);
    const int letters = 1 + static_cast<int>(random() % 3);
    std::vector<int32_t> tokens;
    for (int i = 0; i < size; ++i) tokens.push_back('a' + static_cast<int32_t>(random() % letters));
    dry.params.dry_allowed_length = static_cast<int32_t>(random() % 5);
    dry.params.dry_penalty_last_n = static_cast<int32_t>(random() % 60) - 1;
    dry.params.dry_sequence_breakers = {random() % 2 == 0 ? "z" : "bab"};
    const int64_t window = dry.params.dry_penalty_last_n < 0
                               ? size
                               : std::min<int64_t>(size, dry.params.dry_penalty_last_n);
    const std::vector<int32_t> last(tokens.end() - window, tokens.end());
    const std::string text(last.begin(), last.end());
    int64_t limit = window;
    if (const size_t found = text.rfind("bab");
        found != std::string::npos && dry.params.dry_sequence_breakers[0] == "bab") {
      limit = window - static_cast<int64_t>(found) - 3;
    }
    Penalties expected;
    for (int64_t next = 1; next < window; ++next) {
      int64_t length = 0;
      while (length < next && length < limit &&
             last[next - 1 - length] == last[window - 1 - length]) {
        ++length;
      }
      if (length < dry.params.dry_allowed_length) continue;
      const float penalty = std::pow(2.0f, length - dry.params.dry_allowed_length);
      expected[last[next]] = std::max(expected[last[next]], penalty);
    }
    EXPECT_EQ(dry.Penalties(tokens), expected) << text << " " << dry.params.dry_allowed_length;
  }
}

TEST(DryBreakerCacheTest, KeepsTheBreakersThatWereUsedLast) {
  Dry dry;
  const auto first = dry.cache.Get({"a"}).value();
  for (int i = 0; i < 7; ++i) EXPECT_TRUE(dry.cache.Get({std::string(2 + i, 'b')}).ok());
  EXPECT_EQ(dry.cache.Get({"a"}).value(), first);
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(dry.cache.Get({std::string(2 + i, 'c')}).ok());
  EXPECT_NE(dry.cache.Get({"a"}).value(), first);
}

}  // namespace
}  // namespace tidepool::engine
