#include "engine/sampling/token_filter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/fakes/byte_tokenizer.h"

namespace tidepool::engine {
namespace {

// Returns the tokens that a filter removes after `outputs`.
std::vector<int32_t> Removed(const SamplingParams& params, const std::string& outputs) {
  const auto tokenizer = fakes::MakeByteTokenizer();
  const auto filter = TokenFilter::Create(params, *tokenizer, tokenizer->vocab_size());
  EXPECT_TRUE(filter.ok()) << filter.status();
  std::vector<float> logits(tokenizer->vocab_size());
  filter->Apply(std::vector<int32_t>(outputs.begin(), outputs.end()), absl::MakeSpan(logits));
  std::vector<int32_t> removed;
  for (size_t id = 0; id < logits.size(); ++id) {
    if (std::isinf(logits[id])) removed.push_back(static_cast<int32_t>(id));
  }
  return removed;
}

using Tokens = std::vector<int32_t>;

TEST(TokenFilterTest, TheLastTokenOfABadWordMustNotFollowTheOthers) {
  const SamplingParams params = {.bad_words = {"cat", " x"}};
  EXPECT_EQ(Removed(params, ""), (Tokens{'x'}));
  EXPECT_EQ(Removed(params, "ca"), (Tokens{'t', 'x'}));
  EXPECT_EQ(Removed(params, " ca"), (Tokens{'t', 'x'}));
  EXPECT_EQ(Removed(params, "cab"), (Tokens{'x'}));
  EXPECT_EQ(Removed({.bad_words = {" "}}, ""), (Tokens{' '}));
}

TEST(TokenFilterTest, OnlyAllowedTokensRemain) {
  const SamplingParams params = {.bad_words = {"ab"}, .allowed_token_ids = {'a', 'b', 258, 'a'}};
  EXPECT_EQ(Removed(params, "x").size(), 256u);
  EXPECT_EQ(Removed(params, "a").size(), 257u);
}

}  // namespace
}  // namespace tidepool::engine
