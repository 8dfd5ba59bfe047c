// Engines with tiny hybrids that have experts. Tokens and log-probabilities are bit-identical for
// any size of chunks, any number of threads and of resident experts, and any other sequences in the
// batch.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/engine.h"
#include "kernels/base/check.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/model/gguf_edit.h"
#include "tests/engine/puppet_model.h"

namespace tidepool::engine {
namespace {

constexpr int64_t kContext = 512;
constexpr int kRequests = 5;

struct HybridCase {
  const char* model;         // of tests/golden/families
  const char* architecture;  // prefix of its keys

  friend void PrintTo(const HybridCase& hybrid, std::ostream* out) { *out << hybrid.model; }
};

EngineOptions OptionsFor(int64_t chunk) {
  EngineOptions options = MakeOptions();
  options.context_length = kContext;
  options.kv_memory_bytes = 16 << 20;
  options.limits.rows = 600;
  options.prefill_chunk = chunk;
  return options;
}

// Returns requests whose prompts have different lengths. The first three prompts begin with the
// same tokens.
GenerationRequest MakeLogged(int number) {
  std::vector<int32_t> prompt;
  for (int i = 0; i < 40 + 31 * number; ++i) {
    prompt.push_back((i * i + i / 7 * 5 + (number < 3 && i < 70 ? 0 : number * 13)) % 65);
  }
  GenerationRequest request = MakeRequest(std::move(prompt), 30 + 7 * number);
  request.sampling.temperature = 3;
  request.sampling.seed = number;
  request.logprobs = true;
  request.top_logprobs = 3;
  return request;
}

class EngineHybridsTest : public testing::TestWithParam<HybridCase> {
 protected:
  EngineHybridsTest() {
    const auto& [model, architecture] = GetParam();
    GgufEdit edit(absl::StrCat("tests/golden/families/", model, ".gguf"));
    const std::string context = absl::StrCat(architecture, ".context_length");
    edit.metadata().Remove(context).U32(context, kContext);
    models_.Copy(edit.Write(absl::StrCat(model, "_", kContext, ".gguf")));
  }

  std::unique_ptr<Engine> Start(const PuppetModel& model, int64_t chunk) const {
    auto engine = Engine::Create(model.model.get(), tokenizer_.get(), &base::Clock::Real(),
                                 OptionsFor(chunk));
    CHECK_OK(engine.status());
    return *std::move(engine);
  }

  PuppetModels models_{absl::StrCat(testing::TempDir(), "/engine_hybrids_test_", GetParam().model)};
  const std::unique_ptr<Tokenizer> tokenizer_ = fakes::MakeByteTokenizer();
};

TEST_P(EngineHybridsTest, ChunksThreadsBatchesAndResidentExperts) {
  std::vector<Answer> expected;
  const int64_t experts = models_.Make({.slots = 8}, {}).experts()->Map().uses.size();
  const PuppetModel alone = models_.Make({.slots = experts}, {.backend = TestBackend::kCpu});
  for (int i = 0; i < kRequests; ++i) {
    const std::unique_ptr<Engine> engine = Start(alone, 512);
    expected.push_back(ReadAll(engine->Submit(MakeLogged(i)).value().get()));
    EXPECT_EQ(expected.back().tokens.size(), 30u + 7 * i);
  }
  for (const int64_t slots : {(experts + 3) / 4, experts}) {
    for (const int threads : {1, 2}) {
      const PuppetModel model = models_.Make({.slots = slots}, {.threads = threads});
      for (const int64_t chunk : {1, 5, 31, 32, 33, 64, 512}) {
        SCOPED_TRACE(absl::StrCat(slots, " of ", experts, " experts, ", threads,
                                  " threads, chunks of ", chunk));
        const std::unique_ptr<Engine> engine = Start(model, chunk);
        std::vector<std::unique_ptr<Stream>> streams;
        for (int i = 0; i < kRequests; ++i)
          streams.push_back(engine->Submit(MakeLogged(i)).value());
        for (int i = 0; i < kRequests; ++i) ExpectSame(ReadAll(streams[i].get()), expected[i]);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, EngineHybridsTest,
                         testing::Values(HybridCase{"qwen35moe", "qwen35moe"},
                                         HybridCase{"qwen3next", "qwen3next"},
                                         HybridCase{"lfm2moe", "lfm2moe"}),
                         [](const auto& one) { return std::string(one.param.model); });

}  // namespace
}  // namespace tidepool::engine
