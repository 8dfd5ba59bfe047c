// Measures what sampling one token costs, for vocabularies of 49,152 and 151,936 tokens.
//
//   bazel run --config=opt //tests/bench:sampler_bench
//
// Each case has a temperature of 0.8 and the sampler that it names; `plain` has nothing else. The
// logits are normally distributed with a deviation of 2, and ten of them are larger, so that the
// most probable tokens have most of the probability. `flat` logits have a deviation of 0.5: this is
// the worst case of the samplers that sort. DRY has a context of random tokens, of which some are
// frequent, or of one token repeated, which is its worst case.
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "engine/sampling/sampler.h"
#include "kernels/base/check.h"
#include "tests/fakes/byte_tokenizer.h"

namespace tidepool::engine {
namespace {

constexpr int kVocabularies[] = {49152, 151936};

std::vector<float> Logits(int vocabulary, float deviation) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> logits(vocabulary);
  for (float& logit : logits) logit = normal(random);
  for (int i = 0; i < 10; ++i) logits[random() % vocabulary] += 5 * deviation;
  return logits;
}

// Returns a context in which every tenth token is the most frequent one, as in texts.
std::vector<int32_t> Context(int64_t size, bool repeated) {
  std::mt19937 random(2);
  std::vector<int32_t> tokens(size);
  for (int32_t& token : tokens) {
    const double share = static_cast<double>(random()) / random.max();
    token = repeated ? 'a' : static_cast<int32_t>('a' + 100 * share * share);
  }
  return tokens;
}

void Sample(benchmark::State& state, int vocabulary, float deviation, const SamplingParams& params,
            const std::vector<int32_t>& context) {
  const auto tokenizer = fakes::MakeByteTokenizer();
  DryBreakerCache cache(tokenizer.get());
  SamplingParams chosen = params;
  chosen.temperature = 0.8f;
  auto sampler_state = SamplerState::Create(chosen, *tokenizer, vocabulary, &cache);
  CHECK(sampler_state.ok()) << sampler_state.status().ToString();
  sampler_state->AddPrompt(context);
  const std::vector<float> logits = Logits(vocabulary, deviation);
  Sampler sampler;
  const SampleInput input = {.params = &chosen, .state = &*sampler_state, .tokens = context};
  for (auto _ : state) {
    ++chosen.seed;
    const auto token = sampler.Sample(logits, input);
    CHECK(token.ok()) << token.status().ToString();
    benchmark::DoNotOptimize(token->token_id);
  }
}

void Register(const std::string& name, const SamplingParams& params,
              const std::vector<int32_t>& context = {'a'}) {
  for (const int vocabulary : kVocabularies) {
    for (const auto& [shape, deviation] : {std::pair("", 2.0f), {"/flat", 0.5f}}) {
      benchmark::RegisterBenchmark(absl::StrCat(name, "/", vocabulary, shape).c_str(), Sample,
                                   vocabulary, deviation, params, context)
          ->Unit(benchmark::kMicrosecond);
    }
  }
}

void RegisterAll() {
  std::vector<int32_t> allowed;
  for (int32_t id = 0; id < 49152; id += 2) allowed.push_back(id);
  Register("plain", {});
  Register("top_p", {.top_p = 0.95f});
  Register("top_k", {.top_k = 40});
  Register("top_n_sigma", {.top_n_sigma = 1});
  Register("typical_p", {.typical_p = 0.95f});
  Register("xtc", {.xtc_probability = 1});
  Register("bad_words", {.bad_words = std::vector<std::string>(128, "word")});
  Register("allowed_token_ids", {.allowed_token_ids = allowed});
  for (const int64_t size : {1024, 16384, 131072}) {
    Register(absl::StrCat("dry/", size), {.dry_multiplier = 0.8f}, Context(size, false));
    Register(absl::StrCat("dry_repeated/", size), {.dry_multiplier = 0.8f}, Context(size, true));
  }
}

}  // namespace
}  // namespace tidepool::engine

int main(int argc, char** argv) {
  tidepool::engine::RegisterAll();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
