#include "engine/sampling/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "engine/sampling/philox.h"

namespace tidepool::engine {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The arguments of a Sampler, in a short form.
struct Case {
  SamplingParams params;
  SamplerState state;
  std::optional<int32_t> top_logprobs;
  bool processed_logprobs = false;
  const grammar::TokenMask* allowed = nullptr;

  absl::StatusOr<SampledToken> Sample(const std::vector<float>& logits, int64_t position = 0) {
    return sampler.Sample(logits, {.params = &params,
                                   .state = &state,
                                   .position = position,
                                   .allowed = allowed,
                                   .top_logprobs = top_logprobs,
                                   .processed_logprobs = processed_logprobs});
  }
  int32_t Token(const std::vector<float>& logits, int64_t position = 0) {
    const auto token = Sample(logits, position);
    EXPECT_TRUE(token.ok()) << token.status();
    return token.ok() ? token->token_id : -1;
  }
  // Returns how often each token is drawn in `draws` positions.
  std::map<int32_t, int> Histogram(const std::vector<float>& logits, int draws) {
    std::map<int32_t, int> histogram;
    for (int i = 0; i < draws; ++i) ++histogram[Token(logits, i)];
    return histogram;
  }

  Sampler sampler;
};

std::vector<int32_t> Keys(const std::map<int32_t, int>& histogram) {
  std::vector<int32_t> keys;
  for (const auto& [key, count] : histogram) keys.push_back(key);
  return keys;
}

// Source of the vectors: kat_vectors of the Random123 distribution.
TEST(PhiloxTest, KnownAnswers) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(SamplerTest, GreedyTakesTheBestAndOfEqualsTheLowest) {
  Case c;
  EXPECT_EQ(c.Token({1, 5, 3, 5}), 1);
  EXPECT_EQ(c.Token({-kInfinity, -3, -kInfinity}), 1);
  EXPECT_EQ(c.Token({0}), 0);
}

TEST(SamplerTest, BrokenLogitsAreErrorsThatNameTheToken) {
  for (const float temperature : {0.0f, 1.0f}) {
    Case c;
    c.params.temperature = temperature;
    for (const float bad : {std::nanf(""), -std::nanf(""), kInfinity}) {
      for (const size_t where : {0, 1, 2}) {
        std::vector<float> logits = {1, 2, 3};
        logits[where] = bad;
        const absl::Status status = c.Sample(logits).status();
        EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
        EXPECT_NE(status.message().find("token " + std::to_string(where)), std::string::npos)
            << status;
      }
    }
    EXPECT_EQ(c.Sample({-kInfinity, -kInfinity}).status().code(), absl::StatusCode::kInternal);
  }
}

TEST(SamplerTest, DrawsFollowTheSoftmax) {
  Case c;
  c.params.temperature = 1;
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f), -200};
  const auto histogram = c.Histogram(logits, 10000);
  EXPECT_NEAR(histogram.at(0), 5000, 200);
  EXPECT_NEAR(histogram.at(1), 3000, 200);
  EXPECT_NEAR(histogram.at(2), 2000, 200);
  EXPECT_EQ(histogram.size(), 3u);
}

TEST(SamplerTest, TemperatureSharpensAndFlattens) {
  Case c;
  const std::vector<float> logits = {1, 0};
  c.params.temperature = 0.5;
  EXPECT_NEAR(c.Histogram(logits, 4000)[0], 4000 * 0.8808, 100);
  c.params.temperature = 2;
  EXPECT_NEAR(c.Histogram(logits, 4000)[0], 4000 * 0.6225, 120);
  c.params.temperature = 1e-30f;
  EXPECT_EQ(c.Histogram(logits, 100)[0], 100);
}

TEST(SamplerTest, DrawsDependOnSeedPositionAndNothingElse) {
  const std::vector<float> logits(1000, 0.0f);
  Case a;
  a.params.temperature = 1;
  a.params.seed = 0x123456789abcdef0;
  Case b = a;
  std::vector<int32_t> forward;
  std::vector<int32_t> backward(50);
  for (int i = 0; i < 50; ++i) forward.push_back(a.Token(logits, i));
  for (int i = 49; i >= 0; --i) backward[i] = b.Token(logits, i);
  EXPECT_EQ(forward, backward);
  // All 64 bits of the seed have an effect, and so have positions of more than 32 bits.
  b.params.seed ^= uint64_t{1} << 63;
  EXPECT_NE(a.Token(logits), b.Token(logits));
  EXPECT_NE(a.Token(logits, 1), a.Token(logits, 1 + (int64_t{1} << 32)));
}

TEST(SamplerTest, TopKKeepsTheBest) {
  Case c;
  c.params.temperature = 100;
  c.params.top_k = 2;
  EXPECT_EQ(Keys(c.Histogram({1, 4, 2, 3}, 300)), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(Keys(c.Histogram({2, 2, 2, 2}, 300)), (std::vector<int32_t>{0, 1}));
  c.params.top_k = 100;
  EXPECT_EQ(c.Histogram({1, 4, 2, 3}, 300).size(), 4u);
  c.params.top_k = 1;
  EXPECT_EQ(Keys(c.Histogram({1, 4, 4, 3}, 100)), (std::vector<int32_t>{1}));
}

TEST(SamplerTest, TopPKeepsTheFewestThatReachIt) {
  const std::vector<float> logits = {std::log(0.2f), std::log(0.5f), std::log(0.3f)};
  Case c;
  c.params.temperature = 1;
  c.params.top_p = 0.45f;
  EXPECT_EQ(Keys(c.Histogram(logits, 500)), (std::vector<int32_t>{1}));
  c.params.top_p = 0.55f;
  EXPECT_EQ(Keys(c.Histogram(logits, 500)), (std::vector<int32_t>{1, 2}));
  c.params.top_p = 0.85f;
  EXPECT_EQ(Keys(c.Histogram(logits, 500)), (std::vector<int32_t>{0, 1, 2}));
  // After top_k, the total probability is that of the kept tokens: 0.5 of 0.8 reaches a top_p of
  // 0.6.
  c.params.top_k = 2;
  c.params.top_p = 0.6f;
  EXPECT_EQ(Keys(c.Histogram(logits, 500)), (std::vector<int32_t>{1}));
}

// Compares the sampler with its definition on many candidates, of which many are equal. The order
// is by value, and by id for equal values.
TEST(SamplerTest, ManyCandidatesAreInOrder) {
  std::vector<float> logits(20000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 7919 % 401) / 200;
  std::vector<std::pair<double, int32_t>> order;
  for (size_t i = 0; i < logits.size(); ++i) order.emplace_back(-logits[i], i);
  std::sort(order.begin(), order.end());
  for (const auto& [top_k, top_p] : {std::pair(0, 0.9f), {15000, 1.0f}, {700, 0.8f}}) {
    Case c;
    c.params.temperature = 1;
    c.params.top_k = top_k;
    c.params.top_p = top_p;
    std::vector<double> sums;
    const size_t count = top_k > 0 ? top_k : order.size();
    for (size_t i = 0; i < count; ++i) {
      sums.push_back((i > 0 ? sums.back() : 0) + std::exp(-order[i].first));
    }
    const double mass = top_p * sums.back();
    const size_t kept = std::lower_bound(sums.begin(), sums.end(), mass) - sums.begin() + 1;
    sums.resize(std::min(kept, sums.size()));
    for (int64_t position = 0; position < 50; ++position) {
      const auto random = Philox4x32({static_cast<uint32_t>(position), 0, 0, 0}, {0, 0});
      const uint64_t bits = (uint64_t{random[1]} << 32 | random[0]) >> 11;
      const double target = static_cast<double>(bits) * 0x1p-53 * sums.back();
      const size_t place = std::upper_bound(sums.begin(), sums.end(), target) - sums.begin();
      EXPECT_EQ(c.Token(logits, position), order[place].second) << top_k << ", " << top_p;
    }
  }
}

TEST(SamplerTest, TopPReachesFarIntoFlatDistributions) {
  Case c;
  c.params.temperature = 1;
  c.params.top_p = 0.5;
  const std::vector<float> logits(1000, 1.0f);
  const auto histogram = c.Histogram(logits, 20000);
  EXPECT_EQ(histogram.rbegin()->first, 499);
  EXPECT_GT(histogram.size(), 490u);
}

TEST(SamplerTest, MinPIsAShareOfTheBest) {
  const std::vector<float> logits = {std::log(0.6f), std::log(0.29f), std::log(0.11f)};
  Case c;
  c.params.temperature = 1;
  c.params.min_p = 0.2f;
  EXPECT_EQ(Keys(c.Histogram(logits, 500)), (std::vector<int32_t>{0, 1}));
  c.params.min_p = 1;
  EXPECT_EQ(Keys(c.Histogram(logits, 100)), (std::vector<int32_t>{0}));
}

TEST(SamplerTest, TopNSigmaKeepsLogitsNearTheLargest) {
  // The mean is 2 and the deviation is 2.06.
  const std::vector<float> logits = {4.9f, 0, 0, 4, 1.1f, -kInfinity};
  Case c;
  c.params.temperature = 100;
  c.params.top_n_sigma = 0.5f;
  EXPECT_EQ(Keys(c.Histogram(logits, 500)), (std::vector<int32_t>{0, 3}));
  c.params.top_n_sigma = 2;
  EXPECT_EQ(Keys(c.Histogram(logits, 500)), (std::vector<int32_t>{0, 3, 4}));
  c.params.top_n_sigma = 10;
  EXPECT_EQ(c.Histogram(logits, 500).size(), 5u);
  c.params.top_n_sigma = 1e-6f;
  EXPECT_EQ(Keys(c.Histogram({3, 3, 3}, 500)), (std::vector<int32_t>{0, 1, 2}));
}

TEST(SamplerTest, TypicalPKeepsTokensNearTheEntropy) {
  // The entropy is 1.11 nats. The information of the tokens is 0.51, 1.90, 1.90 and 2.30 nats.
  const std::vector<float> logits = {std::log(0.6f), std::log(0.15f), std::log(0.15f),
                                     std::log(0.1f)};
  Case c;
  c.params.temperature = 1;
  c.params.typical_p = 0.55f;
  EXPECT_EQ(Keys(c.Histogram(logits, 500)), (std::vector<int32_t>{0}));
  c.params.typical_p = 0.65f;  // equal tokens are kept together
  EXPECT_EQ(Keys(c.Histogram(logits, 500)), (std::vector<int32_t>{0, 1, 2}));
  c.params.typical_p = 0.91f;
  EXPECT_EQ(c.Histogram(logits, 500).size(), 4u);
  // The most probable token may be removed.
  const std::vector<float> steep = {std::log(0.4f), std::log(0.2f), std::log(0.2f), std::log(0.2f)};
  c.params.typical_p = 0.3f;
  EXPECT_EQ(Keys(c.Histogram(steep, 500)), (std::vector<int32_t>{1, 2, 3}));
  // top_k is applied first. Of the remaining probabilities 0.8 and 0.2, the first is nearer to the
  // entropy.
  c.params.top_k = 2;
  EXPECT_EQ(Keys(c.Histogram({std::log(0.4f), std::log(0.1f), std::log(0.05f)}, 500)),
            (std::vector<int32_t>{0}));
}

TEST(SamplerTest, XtcRemovesTheTopChoicesAsOftenAsItShould) {
  const std::vector<float> logits = {std::log(0.3f), std::log(0.4f), std::log(0.2f),
                                     std::log(0.1f)};
  Case c;
  c.params.temperature = 1;
  c.params.xtc_threshold = 0.15f;
  c.params.xtc_probability = 1;
  EXPECT_EQ(Keys(c.Histogram(logits, 500)), (std::vector<int32_t>{2, 3}));
  c.params.xtc_threshold = 0.35f;  // one token only
  EXPECT_EQ(c.Histogram(logits, 500).size(), 4u);
  c.params.xtc_threshold = 0.6f;
  EXPECT_EQ(c.Histogram(logits, 500).size(), 4u);
  c.params.xtc_threshold = 0.15f;
  c.params.xtc_probability = 0.25f;
  const auto histogram = c.Histogram(logits, 10000);
  EXPECT_NEAR(histogram.at(0), 10000 * 0.75 * 0.3, 200);
  EXPECT_NEAR(histogram.at(2), 10000 * (0.75 * 0.2 + 0.25 * 2 / 3), 200);
  // Of equal tokens, the higher id is kept.
  c.params.xtc_probability = 1;
  EXPECT_EQ(Keys(c.Histogram({1, 1, 1}, 300)), (std::vector<int32_t>{2}));
}

TEST(SamplerTest, WhetherXtcActsDoesNotChangeTheDraw) {
  const std::vector<float> logits(100, 0.0f);  // no token is above the threshold
  Case c;
  c.params.temperature = 1;
  Case xtc = c;
  xtc.params.xtc_probability = 0.5f;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(c.Token(logits, i), xtc.Token(logits, i));
}

TEST(SamplerTest, GreedyIgnoresTheSamplersOfProbabilities) {
  Case c;
  c.params.typical_p = 0.1f;
  c.params.top_n_sigma = 1;
  c.params.xtc_probability = 1;
  EXPECT_EQ(c.Token({1, 1.1f, 1.05f}), 1);
  EXPECT_TRUE(NeedsOnlyArgMax(c.params));
  for (const auto change : {+[](SamplingParams* p) { p->dry_multiplier = 1; },
                            +[](SamplingParams* p) { p->bad_words = {"a"}; },
                            +[](SamplingParams* p) { p->allowed_token_ids = {1}; }}) {
    SamplingParams params;
    change(&params);
    EXPECT_FALSE(NeedsOnlyArgMax(params));
  }
}

TEST(SamplerTest, PenaltiesAndBias) {
  Case c;
  c.state.counts.emplace();
  c.state.counts->AddPrompt(0);
  c.state.AddOutput(1);
  c.state.AddOutput(1);
  c.params.repetition_penalty = 2;
  EXPECT_EQ(c.Token({10, 8, 6}), 2);    // 5, 4, 6
  EXPECT_EQ(c.Token({-2, -2, -3}), 2);  // -4, -4, -3
  c.params.repetition_penalty = 1;
  c.params.frequency_penalty = 1.5;
  EXPECT_EQ(c.Token({5, 8.5, 4}), 1);  // 5, 5.5, 4
  EXPECT_EQ(c.Token({5, 7.5, 4}), 0);  // 5, 4.5, 4: the prompt does not count
  c.params.frequency_penalty = 0;
  c.params.presence_penalty = 2;
  EXPECT_EQ(c.Token({5, 7.5, 4}), 1);
  EXPECT_EQ(c.Token({5, 6.5, 4}), 0);
  c.params.presence_penalty = 0;
  c.params.logit_bias = {{2, 3.0f}, {1, -100.0f}};
  EXPECT_EQ(c.Token({5, 90, 4}), 2);
  // Extreme values are the caller's choice, not a broken model.
  c.params.repetition_penalty = std::numeric_limits<float>::denorm_min();
  c.params.logit_bias.clear();
  EXPECT_EQ(c.Token({1e30f, 1, 1e30f}), 0);
}

TEST(SamplerTest, LogprobsAreTheModelsOwn) {
  Case c;
  c.top_logprobs = 3;
  c.params.logit_bias = {{2, 100.0f}};
  c.params.temperature = 0.1f;
  const std::vector<float> logits = {1, 3, 2, 3, -kInfinity};
  const auto token = c.Sample(logits);
  ASSERT_TRUE(token.ok() && token->logprob.has_value());
  EXPECT_EQ(token->token_id, 2);
  double total = 0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit));
  EXPECT_EQ(token->logprob->token_id, 2);
  EXPECT_NEAR(token->logprob->logprob, 2 - std::log(total), 1e-6);
  ASSERT_EQ(token->logprob->top.size(), 3u);
  EXPECT_EQ(token->logprob->top[0].first, 1);
  EXPECT_EQ(token->logprob->top[1].first, 3);
  EXPECT_EQ(token->logprob->top[2].first, 2);
  EXPECT_NEAR(token->logprob->top[0].second, 3 - std::log(total), 1e-6);
  c.top_logprobs = std::nullopt;
  EXPECT_FALSE(c.Sample(logits)->logprob.has_value());
}

TEST(SamplerTest, ProcessedLogprobsAreThoseOfTheDraw) {
  Case c;
  c.top_logprobs = 20;
  c.processed_logprobs = true;
  c.params.temperature = 0.5f;
  c.params.logit_bias = {{2, 0.5f}};
  c.params.top_k = 3;
  grammar::TokenMask allowed(6);
  for (const int32_t id : {0, 1, 2, 3, 5}) allowed.Set(id);
  c.allowed = &allowed;
  const std::vector<float> logits = {1, 3, 2, 2.75f, 9, -1};
  const std::vector<std::pair<int32_t, double>> kept = {{1, 3}, {3, 2.75}, {2, 2.5}};
  double total = 0;
  for (const auto& [id, logit] : kept) total += std::exp(logit / 0.5);
  for (int64_t position = 0; position < 20; ++position) {
    const auto token = c.Sample(logits, position);
    ASSERT_TRUE(token.ok() && token->logprob.has_value());
    ASSERT_EQ(token->logprob->top.size(), kept.size());
    for (size_t i = 0; i < kept.size(); ++i) {
      EXPECT_EQ(token->logprob->top[i].first, kept[i].first);
      const double expected = kept[i].second / 0.5 - std::log(total);
      EXPECT_NEAR(token->logprob->top[i].second, expected, 1e-6);
      if (kept[i].first != token->token_id) continue;
      EXPECT_EQ(token->logprob->logprob, token->logprob->top[i].second);
    }
  }
}

TEST(SamplerTest, ProcessedLogprobsOfTheBestTokenIgnoreTheStepsOfADraw) {
  Case c;
  c.top_logprobs = 20;
  c.processed_logprobs = true;
  c.params.top_k = 1;
  grammar::TokenMask allowed(4);
  allowed.Set(0);
  allowed.Set(2);
  c.allowed = &allowed;
  const auto token = c.Sample({1, 5, 2, 4});
  ASSERT_TRUE(token.ok() && token->logprob.has_value());
  EXPECT_EQ(token->token_id, 2);
  EXPECT_NEAR(token->logprob->logprob, -std::log(1 + std::exp(-1)), 1e-6);
  ASSERT_EQ(token->logprob->top.size(), 2u);
  EXPECT_EQ(token->logprob->top[1].first, 0);
}

TEST(SamplerTest, LogprobsOfWideRanges) {
  Case c;
  c.top_logprobs = 0;
  for (const float spread : {0.0f, 1e-3f, 1.0f, 30.0f, 300.0f}) {
    std::vector<float> logits;
    for (int i = 0; i < 5000; ++i) logits.push_back(spread * std::sin(static_cast<float>(i)));
    double total = 0;
    const auto token = c.Sample(logits);
    for (const float logit : logits) total += std::exp(static_cast<double>(logit) - spread);
    const double expected = logits[token->token_id] - spread - std::log(total);
    EXPECT_NEAR(token->logprob->logprob, expected, 1e-5 + 1e-6 * std::abs(expected)) << spread;
  }
}

TEST(SamplingParamsTest, NamesTheFieldThatIsOutOfRange) {
  const auto message = [](auto change) {
    SamplingParams params;
    change(&params);
    const absl::Status status = params.Validate(100);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  const float nan = std::nanf("");
  const auto has = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(message([&](auto* p) { p->temperature = nan; }), "temperature is nan");
  has(message([&](auto* p) { p->temperature = -0.1f; }), "temperature is -0.1");
  has(message([&](auto* p) { p->temperature = kInfinity; }), "from 0 to 100");
  has(message([&](auto* p) { p->top_k = -1; }), "top_k");
  has(message([&](auto* p) { p->top_p = 0; }), "top_p");
  has(message([&](auto* p) { p->top_p = nan; }), "top_p");
  has(message([&](auto* p) { p->min_p = 1.5f; }), "min_p");
  has(message([&](auto* p) { p->repetition_penalty = 0; }), "repetition_penalty");
  has(message([&](auto* p) { p->repetition_penalty = kInfinity; }), "repetition_penalty");
  has(message([&](auto* p) { p->frequency_penalty = 3; }), "frequency_penalty");
  has(message([&](auto* p) { p->presence_penalty = nan; }), "presence_penalty");
  has(message([&](auto* p) { p->logit_bias = {{100, 1}}; }), "logit_bias key is 100");
  has(message([&](auto* p) { p->logit_bias = {{5, nan}}; }), "logit_bias of token 5");
  for (const float bad : {nan, kInfinity, 0.0f, 1.1f}) {
    has(message([&](auto* p) { p->typical_p = bad; }), "typical_p");
  }
  for (const float bad : {nan, kInfinity, -0.1f}) {
    has(message([&](auto* p) { p->top_n_sigma = bad; }), "top_n_sigma");
    has(message([&](auto* p) { p->dry_multiplier = bad; }), "dry_multiplier");
    has(message([&](auto* p) { p->dry_base = bad; }), "dry_base");
    has(message([&](auto* p) { p->xtc_probability = bad; }), "xtc_probability");
    has(message([&](auto* p) { p->xtc_threshold = bad; }), "xtc_threshold");
  }
  has(message([&](auto* p) { p->dry_base = 0.9f; }), "dry_base");
  has(message([&](auto* p) { p->xtc_probability = 1.1f; }), "from 0 to 1");
  has(message([&](auto* p) { p->dry_allowed_length = -1; }), "dry_allowed_length");
  has(message([&](auto* p) { p->dry_penalty_last_n = -2; }), "dry_penalty_last_n");
  has(message([&](auto* p) { p->dry_sequence_breakers = {"a", ""}; }), "dry_sequence_breakers[1]");
  has(message([&](auto* p) { p->dry_sequence_breakers = {std::string(65, 'a')}; }), "64 bytes");
  has(message([&](auto* p) { p->dry_sequence_breakers.assign(129, "a"); }), "128");
  has(message([&](auto* p) { p->bad_words = {std::string(257, 'a')}; }), "bad_words[0]");
  has(message([&](auto* p) { p->bad_words.assign(129, "a"); }), "bad_words has 129 entries");
  has(message([&](auto* p) { p->allowed_token_ids = {5, 100}; }), "allowed_token_ids is 100");
  EXPECT_TRUE(SamplingParams().Validate(100).ok());
}

TEST(StoppingParamsTest, NamesTheFieldThatIsOutOfRange) {
  const auto message = [](auto change) {
    StoppingParams params;
    params.max_tokens = 1;
    change(&params);
    const absl::Status status = params.Validate(100);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(message([](auto* p) { p->max_tokens = -1; }),
            "max_tokens is -1; it must be at least 0");
  EXPECT_EQ(message([](auto* p) {
              p->stop = {"a", ""};
            }),
            "stop[1] is 0 bytes long; it must be 1 to 1024 bytes");
  EXPECT_EQ(message([](auto* p) { p->stop.assign(17, "a"); }),
            "stop has 17 entries; at most 16 are allowed");
  EXPECT_EQ(message([](auto* p) { p->stop_token_ids = {100}; }),
            "stop_token_ids is 100; it must be a token id from 0 to 99");
}

}  // namespace
}  // namespace tidepool::engine
