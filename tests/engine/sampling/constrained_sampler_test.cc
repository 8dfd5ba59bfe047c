// The sampler with the mask of a constraint. It removes tokens in another way than
// allowed_token_ids, which works on all logits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "engine/sampling/sampler.h"
#include "tests/fakes/byte_tokenizer.h"

namespace tidepool::engine {
namespace {

// Returns the tokens that are drawn with seeds from 0 to 19.
std::vector<int32_t> Draws(const std::vector<float>& logits, SamplingParams params,
                           const SamplerState& state, const grammar::TokenMask* allowed) {
  std::vector<int32_t> tokens;
  Sampler sampler;
  for (params.seed = 0; params.seed < 20; ++params.seed) {
    const auto token =
        sampler.Sample(logits, {.params = &params, .state = &state, .allowed = allowed});
    EXPECT_TRUE(token.ok()) << token.status();
    tokens.push_back(token.ok() ? token->token_id : -1);
  }
  return tokens;
}

// Returns a mask with token 0 and about one in `every` tokens.
grammar::TokenMask RandomMask(int size, uint32_t every, std::mt19937* random) {
  grammar::TokenMask mask(size);
  mask.Set(0);
  for (int32_t id = 1; id < size; ++id) {
    if ((*random)() % every == 0) mask.Set(id);
  }
  return mask;
}

class ConstrainedSamplerTest : public testing::Test {
 protected:
  // Draws with a mask and with allowed_token_ids.
  void Compare(const std::vector<float>& logits, const grammar::TokenMask& mask,
               SamplingParams params) {
    const std::vector<int32_t> masked = Draws(logits, params, SamplerState(), &mask);
    mask.AppendIds(&params.allowed_token_ids);
    const auto state = SamplerState::Create(params, *tokenizer_, mask.size(), &cache_);
    ASSERT_TRUE(state.ok()) << state.status();
    EXPECT_EQ(masked, Draws(logits, params, *state, nullptr));
  }

  const std::unique_ptr<Tokenizer> tokenizer_ = fakes::MakeByteTokenizer();
  DryBreakerCache cache_{tokenizer_.get()};
};

TEST_F(ConstrainedSamplerTest, DrawsTheTokensOfAllowedTokenIds) {
  const std::vector<SamplingParams> variants = {
      {},
      {.temperature = 1},
      {.temperature = 1, .top_k = 5},
      {.temperature = 1, .top_p = 0.6f},
      {.temperature = 1, .top_k = 20, .top_p = 0.6f},
      {.temperature = 1, .min_p = 0.1f},
      {.temperature = 1, .typical_p = 0.5f},
      {.temperature = 1, .top_n_sigma = 1.5f},
      {.temperature = 1, .xtc_probability = 0.5f},
  };
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3);
  for (const int size : {1, 40, 64, 200, 1000}) {
    for (const uint32_t every : {1, 2, 20}) {
      std::vector<float> logits(size);
      for (float& logit : logits) logit = normal(random);
      // Vocabularies can be larger or smaller than a row of logits.
      const int vocabulary = std::max(1, size + static_cast<int>(random() % 100) - 20);
      const grammar::TokenMask mask = RandomMask(vocabulary, every, &random);
      for (const SamplingParams& variant : variants) {
        SCOPED_TRACE(testing::Message() << size << " logits, a token in " << every << ", variant "
                                        << &variant - variants.data());
        Compare(logits, mask, variant);
      }
    }
  }
}

TEST_F(ConstrainedSamplerTest, AnErrorNamesTheToken) {
  grammar::TokenMask allowed(200);
  for (const int32_t id : {7, 90, 150}) allowed.Set(id);
  std::vector<float> logits(200, 1.0f);
  logits[8] = std::nanf("");  // not allowed, so it does not matter
  const SamplingParams params;
  const SamplerState state;
  const SampleInput input = {.params = &params, .state = &state, .allowed = &allowed};
  Sampler sampler;
  EXPECT_EQ(sampler.Sample(logits, input)->token_id, 7);
  logits[90] = std::nanf("");
  EXPECT_THAT(sampler.Sample(logits, input).status().message(),
              testing::HasSubstr("token 90 is NaN"));
}

}  // namespace
}  // namespace tidepool::engine
