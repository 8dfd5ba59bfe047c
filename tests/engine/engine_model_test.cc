// The engine with real models. It covers what fakes cannot show, such as KV blocks with old
// contents of other sequences.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/kv/kv_cache.h"
#include "engine/model/workspace.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/tokenizer/tokenizer_spec.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/model/golden_data.h"

namespace tidepool::engine {
namespace {

using kernels::DType;
using kernels::Precision;

// A model of tests/golden/tiny, with an engine.
struct RealEngine {
  RealEngine(const std::string& name, const EngineOptions& options)
      : loaded(Load("tests/golden/tiny/" + name + ".gguf",
                    {.precision = Precision::kFast, .kv_dtype = DType::kF16})) {
    auto spec = ReadTokenizerSpec(loaded.store->file());
    EXPECT_TRUE(spec.ok()) << spec.status();
    tokenizer = Tokenizer::Create(*std::move(spec)).value();
    engine =
        Engine::Create(loaded.model.get(), tokenizer.get(), &base::Clock::Real(), options).value();
  }

  std::unique_ptr<Stream> Submit(const GenerationRequest& request) {
    return engine->Submit(request).value();
  }

  LoadedModel loaded;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<Engine> engine;
};

class EngineModelTest : public testing::TestWithParam<const char*> {};

// Returns greedy and sampled requests with common prefixes and different lengths.
std::vector<GenerationRequest> MixedRequests(int count, int vocab_size) {
  std::vector<GenerationRequest> requests;
  for (int i = 0; i < count; ++i) {
    std::vector<int32_t> prompt;
    for (int at = 0; at < 1 + i * 29 % 60; ++at) {
      prompt.push_back((at * at + (at < 40 ? 0 : i * 7) + 3) % vocab_size);
    }
    GenerationRequest request = MakeRequest(prompt, 5 + i * 31 % 95);
    request.sampling.temperature = i % 2 == 0 ? 0 : 0.8f;
    request.sampling.seed = i;
    request.logprobs = i % 3 != 0;
    requests.push_back(request);
  }
  return requests;
}

void ExpectEqual(const Answer& answer, const Answer& expected) {
  EXPECT_EQ(answer.status, expected.status);
  EXPECT_EQ(answer.tokens, expected.tokens);
  EXPECT_EQ(answer.text, expected.text);
  ASSERT_EQ(answer.logprobs.size(), expected.logprobs.size());
  for (size_t i = 0; i < answer.logprobs.size(); ++i) {
    EXPECT_EQ(answer.logprobs[i].logprob, expected.logprobs[i].logprob) << i;  // every bit
  }
}

TEST_P(EngineModelTest, ManyStreamsEqualTheirSoloRuns) {
  EngineOptions options = MakeOptions();
  options.context_length = 160;
  options.kv_memory_bytes = 8 << 20;
  RealEngine together(GetParam(), options);
  // With little memory and small chunks, sequences are preempted and reused all the time.
  EngineOptions tight = options;
  tight.prefill_chunk = 7;
  tight.kv_memory_bytes =
      12 * KvCache::Create(together.loaded.model->kv_specs(), {.memory_bytes = 64 << 20})
               .value()
               ->block_bytes();
  RealEngine squeezed(GetParam(), tight);
  const std::vector<GenerationRequest> requests =
      MixedRequests(32, together.tokenizer->vocab_size());
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::unique_ptr<Stream>> tight_streams;
  for (const GenerationRequest& request : requests) {
    streams.push_back(together.Submit(request));
    tight_streams.push_back(squeezed.Submit(request));
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    RealEngine alone(GetParam(), options);
    const Answer solo = ReadAll(alone.Submit(requests[i]).get());
    ExpectEqual(ReadAll(streams[i].get()), solo);
    ExpectEqual(ReadAll(tight_streams[i].get()), solo);
  }
  EXPECT_GT(squeezed.engine->Stats().preemptions, 0);
}

// Greedy requests without log-probabilities use the head's argmax. Other requests use their rows of
// logits. In one batch, both kinds choose the same tokens.
TEST_P(EngineModelTest, TheBestTokenIsThatOfTheLogits) {
  EngineOptions options = MakeOptions();
  options.context_length = 160;
  options.kv_memory_bytes = 8 << 20;
  RealEngine engine(GetParam(), options);
  std::vector<std::unique_ptr<Stream>> streams;
  for (GenerationRequest request : MixedRequests(12, engine.tokenizer->vocab_size())) {
    request.sampling.temperature = 0;
    for (const bool logprobs : {false, true}) {
      request.logprobs = logprobs;
      streams.push_back(engine.Submit(request));
    }
  }
  for (size_t i = 0; i < streams.size(); i += 2) {
    const Answer best = ReadAll(streams[i].get());
    const Answer whole = ReadAll(streams[i + 1].get());
    EXPECT_TRUE(best.logprobs.empty());
    EXPECT_EQ(whole.logprobs.size(), whole.tokens.size());
    EXPECT_EQ(best.tokens, whole.tokens) << i;
    EXPECT_EQ(best.text, whole.text) << i;
  }
}

// A reused block still has its previous contents, in the worst case NaNs.
TEST_P(EngineModelTest, ContentsOfUnwrittenSlotsDoNotMatter) {
  const LoadedModel loaded =
      Load(std::string("tests/golden/tiny/") + GetParam() + ".gguf", {.kv_dtype = DType::kF32});
  const std::vector<int32_t> tokens = {5, 9, 2, 33, 17, 4, 8};
  std::vector<std::vector<float>> rows;
  for (const float fill : {0.0f, std::nanf(""), std::numeric_limits<float>::infinity()}) {
    auto cache = KvCache::Create(loaded.model->kv_specs(),
                                 {.memory_bytes = 1 << 20, .backend = loaded.backend.get()})
                     .value();
    const std::vector<float> filled(cache->blocks_total() * cache->block_bytes() / sizeof(float),
                                    fill);
    loaded.backend->CopyIn(
        {reinterpret_cast<const std::byte*>(filled.data()), filled.size() * sizeof(float)},
        cache->view().layers[0].arena);
    kernels::Arena workspace = MakeWorkspace(*loaded.model, {.rows = 8, .logit_rows = 1}).value();
    KvLease lease = cache->NewLease("");
    for (const int64_t end : {4, 5, 6, 7}) {
      lease.Reserve(end)->Keep();
      Batch batch;
      RowSpan span;
      span.first_slot = lease.slots();
      span.token_ids.assign(tokens.begin() + lease.slots(), tokens.begin() + end);
      span.logit_rows = {static_cast<int32_t>(span.rows() - 1)};
      span.blocks = lease.Tables(end);
      batch.spans.push_back(span);
      const auto output = loaded.model->Forward(batch, cache->view(), &workspace);
      ASSERT_TRUE(output.ok()) << output.status();
      lease.Commit(absl::MakeSpan(tokens).first(end));
      if (end == 7) {
        rows.emplace_back(output->logits.Row(0), output->logits.Row(0) + output->logits.cols);
      }
    }
  }
  EXPECT_EQ(rows[1], rows[0]);
  EXPECT_EQ(rows[2], rows[0]);
}

INSTANTIATE_TEST_SUITE_P(All, EngineModelTest,
                         testing::Values("serving_llama_f32", "serving_qwen3moe_f16"));

}  // namespace
}  // namespace tidepool::engine
