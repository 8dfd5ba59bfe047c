// Engines with tiny models of families whose KV is not one group of full layers: sliding windows,
// MLA and recurrent states. Eviction, sharing and restoring of a sequence's KV do not change its
// tokens and log-probabilities: they stay bit-identical.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/engine.h"
#include "engine/kv/kv_cache.h"
#include "engine/kv/kv_layout.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/model/gguf_edit.h"
#include "tests/engine/model/golden_data.h"
#include "tests/fakes/byte_tokenizer.h"

namespace tidepool::engine {
namespace {

using kernels::DType;
using kernels::Precision;

constexpr int64_t kTokens = kernels::kKvBlockTokens;
constexpr int64_t kContext = 512;
constexpr int64_t kPrompt = 150;
constexpr int64_t kOutput = 100;

struct FamilyCase {
  const char* model;         // of tests/golden/families
  const char* architecture;  // prefix of its keys
  uint32_t window;           // 0: the model has none

  friend void PrintTo(const FamilyCase& family, std::ostream* out) {
    *out << family.model << ", window " << family.window;
  }
};

// Writes the model with the case's window and a longer context. Returns its path.
std::string WriteModel(const FamilyCase& family) {
  GgufEdit edit(absl::StrCat("tests/golden/families/", family.model, ".gguf"));
  const auto set = [&](const char* key, uint32_t value) {
    const std::string name = absl::StrCat(family.architecture, ".", key);
    edit.metadata().Remove(name).U32(name, value);
  };
  set("context_length", kContext);
  if (family.window > 0) set("attention.sliding_window", family.window);
  return edit.Write(absl::StrCat(family.model, "_", family.window, ".gguf"));
}

EngineOptions Options() {
  EngineOptions options = MakeOptions();
  options.context_length = kContext;
  options.kv_memory_bytes = 8 << 20;
  options.limits.rows = 600;
  options.prefill_chunk = 512;
  return options;
}

// The model of a case, and an engine that uses it.
struct FamilyEngine {
  FamilyEngine(const FamilyCase& family, const EngineOptions& options, int threads = 1,
               TestBackend backend = TestBackend::kFromEnvironment)
      : loaded(Load(WriteModel(family), {.precision = Precision::kFast,
                                         .kv_dtype = DType::kF16,
                                         .threads = threads,
                                         .backend = backend})),
        tokenizer(fakes::MakeByteTokenizer()) {
    Start(options);
  }

  // Starts an engine without cached KV.
  void Start(const EngineOptions& options) {
    engine.reset();
    engine =
        Engine::Create(loaded.model.get(), tokenizer.get(), &base::Clock::Real(), options).value();
  }
  std::unique_ptr<Stream> Submit(const GenerationRequest& request) {
    return engine->Submit(request).value();
  }
  Answer Run(const GenerationRequest& request) { return ReadAll(Submit(request).get()); }

  // After a request of kPrompt and kOutput tokens, a second one begins with `computed` of them.
  // Returns how many of these it finds in the cache. Recurrent states are only found at the ends of
  // the prompt and of the response.
  int64_t Found(int64_t computed) const {
    if (engine->Stats().kv_state_bytes == 0) return computed;
    for (const int64_t end : {kPrompt + kOutput - 1, kPrompt - StateLease::kPromptEndTokens}) {
      if (computed >= end / kTokens * kTokens) return end / kTokens * kTokens;
    }
    return 0;
  }

  LoadedModel loaded;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<Engine> engine;
};

std::vector<int32_t> Ids(int64_t count, int seed) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<int32_t>((i * i + i / 7 * 5 + int64_t{seed} * 13) % 65));
  }
  return ids;
}

GenerationRequest MakeLogged(std::vector<int32_t> prompt, int64_t max_tokens) {
  GenerationRequest request = MakeRequest(std::move(prompt), max_tokens);
  request.sampling.temperature = 3;
  request.sampling.seed = 5;
  request.logprobs = true;
  request.top_logprobs = 3;
  return request;
}

class EngineFamiliesTest : public testing::TestWithParam<FamilyCase> {
 protected:
  static Answer Undisturbed(const GenerationRequest& request) {
    return FamilyEngine(GetParam(), Options(), 1, TestBackend::kCpu).Run(request);
  }

  // Returns the bytes for one sequence of this number of tokens, and two more blocks.
  static size_t MemoryFor(const FamilyEngine& engine, int64_t tokens, int64_t step) {
    const std::vector<KvSpec>& specs = engine.loaded.model->kv_specs();
    auto probe = KvCache::Create(specs, {.memory_bytes = 64 << 20}).value();
    return (probe->BlocksFor(tokens, step) + 2) * probe->block_bytes();
  }
};

TEST_P(EngineFamiliesTest, ChunksAndThreads) {
  const GenerationRequest request = MakeLogged(Ids(kPrompt, 1), kOutput);
  const Answer expected = Undisturbed(request);
  EXPECT_EQ(expected.tokens.size(), kOutput);
  EXPECT_GT(std::set<int32_t>(expected.tokens.begin(), expected.tokens.end()).size(), 20u);
  for (const int threads : {1, 2}) {
    FamilyEngine engine(GetParam(), Options(), threads);
    for (const int64_t chunk : {1, 5, 31, 32, 33, 64, 512}) {
      SCOPED_TRACE(absl::StrCat(threads, " threads, chunks of ", chunk));
      EngineOptions options = Options();
      options.prefill_chunk = chunk;
      engine.Start(options);
      ExpectSame(engine.Run(request), expected);
    }
  }
}

// Runs many sequences at once, with different lengths and common prefixes. They have plenty of
// memory, or little more than the longest one needs.
TEST_P(EngineFamiliesTest, MixedBatches) {
  FamilyEngine roomy(GetParam(), Options(), 2);
  FamilyEngine tight(GetParam(), Options(), 2);
  EngineOptions options = Options();
  options.prefill_chunk = 33;
  options.kv_memory_bytes = MemoryFor(tight, 60 + 40 + kOutput, 33);
  tight.Start(options);
  FamilyEngine alone(GetParam(), Options());
  std::vector<GenerationRequest> requests;
  for (int i = 0; i < 12; ++i) {
    std::vector<int32_t> prompt = Ids(1 + i * 37 % 60, i % 3);
    const std::vector<int32_t> own = Ids(i * 29 % 40, 10 + i);
    prompt.insert(prompt.end(), own.begin(), own.end());
    requests.push_back(MakeLogged(std::move(prompt), 50 + i * 31 % 50));
    requests.back().sampling.seed = i;
  }
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::unique_ptr<Stream>> tight_streams;
  for (const GenerationRequest& request : requests) {
    streams.push_back(roomy.Submit(request));
    tight_streams.push_back(tight.Submit(request));
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    alone.Start(Options());
    const Answer expected = alone.Run(requests[i]);
    ExpectSame(ReadAll(streams[i].get()), expected);
    ExpectSame(ReadAll(tight_streams[i].get()), expected);
  }
}

// Returns positions at and around the ends of blocks, and positions where the window begins to
// move.
std::vector<int64_t> CutPositions(int64_t window, int64_t length) {
  std::set<int64_t> positions = {1, 2, length - 1, length};
  for (int64_t block = kTokens; block <= length + 1; block += kTokens) {
    for (int64_t position = block - 2; position <= block + 2; ++position) {
      positions.insert(position);
    }
  }
  for (int64_t position = window - 1; position <= window + 2; ++position) {
    positions.insert(position);
  }
  std::vector<int64_t> cuts;
  for (const int64_t position : positions) {
    if (position >= 1 && position <= length) cuts.push_back(position);
  }
  return cuts;
}

// For the engine, a forked or truncated session is a prompt that begins with a part of another
// sequence's tokens.
TEST_P(EngineFamiliesTest, ForksAndTruncations) {
  FamilyEngine engine(GetParam(), Options());
  FamilyEngine alone(GetParam(), Options());
  std::vector<int32_t> tokens = Ids(kPrompt, 1);
  const Answer first = engine.Run(MakeLogged(tokens, kOutput));
  tokens.insert(tokens.end(), first.tokens.begin(), first.tokens.end());
  for (const int64_t cut : CutPositions(GetParam().window, tokens.size())) {
    SCOPED_TRACE(absl::StrCat("after ", cut, " tokens"));
    std::vector<int32_t> fork(tokens.begin(), tokens.begin() + cut);
    fork.insert(fork.end(), {3, 64, 0});
    const GenerationRequest request = MakeLogged(std::move(fork), 40);
    alone.Start(Options());
    const Answer answer = engine.Run(request);
    ExpectSame(answer, alone.Run(request));
    // The last token of a sequence has no KV.
    const int64_t computed = std::min<int64_t>(cut, kPrompt + kOutput - 1);
    EXPECT_GE(answer.usage.cached_tokens, engine.Found(computed / kTokens * kTokens));
  }
  // The first session continues as if there were no forks.
  const GenerationRequest next = MakeLogged(tokens, 40);
  alone.Start(Options());
  const Answer answer = engine.Run(next);
  ExpectSame(answer, alone.Run(next));
  EXPECT_GT(answer.usage.cached_tokens, kPrompt + kOutput - 2 * kTokens);
}

// A sequence loses its KV at every position of its response.
TEST_P(EngineFamiliesTest, PreemptionAtEveryPosition) {
  const GenerationRequest request = MakeLogged(Ids(40, 1), kOutput);
  const Answer expected = Undisturbed(request);
  FamilyEngine engine(GetParam(), Options());
  EngineOptions options = Options();
  options.prefill_chunk = 64;
  options.kv_memory_bytes = MemoryFor(engine, 40 + kOutput, 64);
  for (int64_t position = 1; position < kOutput; ++position) {
    SCOPED_TRACE(position);
    engine.Start(options);
    GenerationRequest stalling = request;
    stalling.credit = position;
    const std::unique_ptr<Stream> stream = engine.Submit(stalling);
    Answer answer;
    while (static_cast<int64_t>(answer.tokens.size()) < position) {
      const absl::StatusOr<StreamChunk> chunk = stream->Next();
      ASSERT_TRUE(chunk.ok()) << chunk.status();
      answer.tokens.insert(answer.tokens.end(), chunk->token_ids.begin(), chunk->token_ids.end());
      answer.logprobs.insert(answer.logprobs.end(), chunk->logprobs.begin(), chunk->logprobs.end());
    }
    // This request needs nearly all of the memory.
    EXPECT_EQ(engine.Run(MakeRequest(Ids(40 + kOutput - 2, 9), 2)).tokens.size(), 2u);
    EXPECT_EQ(engine.engine->Stats().preemptions, 1);
    stream->AddCredit(kOutput);
    Answer rest = ReadAll(stream.get());
    rest.tokens.insert(rest.tokens.begin(), answer.tokens.begin(), answer.tokens.end());
    rest.logprobs.insert(rest.logprobs.begin(), answer.logprobs.begin(), answer.logprobs.end());
    ExpectSame(rest, expected);
  }
}

// The next engine reads the KV of a stopped engine from the disk.
TEST_P(EngineFamiliesTest, KvOnDisk) {
  const GenerationRequest request = MakeLogged(Ids(kPrompt, 1), kOutput);
  const std::string path = testing::TempDir() + "/engine_families_test.kv";
  std::filesystem::remove(path);
  EngineOptions options = Options();
  options.kv_disk_path = path;
  options.kv_disk_bytes = 16 << 20;
  FamilyEngine engine(GetParam(), options);
  const Answer expected = engine.Run(request);
  EXPECT_EQ(expected.usage.cached_tokens, 0);
  engine.Start(options);
  const Answer again = engine.Run(request);
  ExpectSame(again, expected);
  EXPECT_EQ(again.usage.cached_tokens, (kPrompt - 1) / kTokens * kTokens);
  // The next engine runs the next turn of the session.
  engine.Start(options);
  std::vector<int32_t> tokens = Ids(kPrompt, 1);
  tokens.insert(tokens.end(), expected.tokens.begin(), expected.tokens.end());
  tokens.push_back(7);
  const Answer next = engine.Run(MakeLogged(tokens, 40));
  ExpectSame(next, Undisturbed(MakeLogged(tokens, 40)));
  EXPECT_EQ(next.usage.cached_tokens, (kPrompt + kOutput - 1) / kTokens * kTokens);
  std::filesystem::remove(path);
}

// A prompt nearly fills a context of 131,072 tokens. There is memory for one layer with the whole
// context, and for the window of the other layer.
TEST(LongContextTest, APromptFarPastTheWindowIsAdmitted) {
  constexpr int64_t kLong = 131072;
  const fakes::ScriptedModelOptions model{.window = 1024};
  EngineOptions options = MakeOptions();
  options.context_length = kLong;
  options.prefill_chunk = 512;
  options.limits.rows = 1024;
  options.kv_memory_bytes = MemoryOfBlocks(kLong / kTokens + (1024 + 512) / kTokens + 3, model);
  TestEngine test(options, model);
  std::vector<int32_t> prompt = Ids(kLong - 4, 1);
  const Answer answer = test.Run(MakeRequest(prompt, 4));
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.tokens.size(), 4u);
  // A continuation finds the whole prompt, although most of it is outside of the window.
  prompt.resize(kLong - 20);
  prompt.push_back(200);
  EXPECT_GE(test.Run(MakeRequest(prompt, 1)).usage.cached_tokens, kLong - 64);
}

// The windows are inside of a block, longer than two blocks, or whole blocks. All layers of phi3
// have a window. The KV of deepseek_v2 and deepseek_v3 is MLA's latent vector. The last four models
// have recurrent states.
INSTANTIATE_TEST_SUITE_P(
    All, EngineFamiliesTest,
    testing::Values(FamilyCase{"gemma3", "gemma3", 9}, FamilyCase{"gemma3", "gemma3", 70},
                    FamilyCase{"gemma2", "gemma2", 64}, FamilyCase{"gpt_oss", "gpt-oss", 33},
                    FamilyCase{"phi3", "phi3", 17}, FamilyCase{"phi3", "phi3", 96},
                    FamilyCase{"deepseek_v2", "deepseek2", 0},
                    FamilyCase{"deepseek_v3", "deepseek2", 0},
                    FamilyCase{"qwen3next", "qwen3next", 0}, FamilyCase{"qwen35", "qwen35", 0},
                    FamilyCase{"qwen35moe", "qwen35moe", 0}, FamilyCase{"lfm2", "lfm2", 0}),
    [](const auto& test) { return absl::StrCat(test.param.model, "_", test.param.window); });

}  // namespace
}  // namespace tidepool::engine
