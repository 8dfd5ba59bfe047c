// An engine with fakes, and functions that drive it.
#ifndef TIDEPOOL_TESTS_ENGINE_ENGINE_FIXTURE_H_
#define TIDEPOOL_TESTS_ENGINE_ENGINE_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/engine.h"
#include "tests/fakes/byte_tokenizer.h"
#include "tests/fakes/manual_clock.h"
#include "tests/fakes/scripted_model.h"

namespace tidepool::engine {

// Everything that a stream returned, and the token with which each part was returned.
struct Answer {
  std::vector<int32_t> tokens;
  std::string text;
  std::vector<TokenLogprob> logprobs;
  std::optional<FinishReason> finish;
  Usage usage;
  absl::Status status;
  std::vector<StreamChunk> chunks;
};

inline bool SameLogprob(const TokenLogprob& a, const TokenLogprob& b) {
  return a.token_id == b.token_id && a.logprob == b.logprob && a.top == b.top;
}

// Expects the same tokens, with bit-identical log-probabilities.
inline void ExpectSame(const Answer& answer, const Answer& expected) {
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.tokens, expected.tokens);
  ASSERT_EQ(answer.logprobs.size(), expected.logprobs.size());
  for (size_t i = 0; i < answer.logprobs.size(); ++i) {
    EXPECT_TRUE(SameLogprob(answer.logprobs[i], expected.logprobs[i])) << "token " << i;
  }
}

// Reads a stream to its end. Grants credit for every token that it reads.
inline Answer ReadAll(Stream* stream) {
  Answer answer;
  while (!answer.finish.has_value()) {
    absl::StatusOr<StreamChunk> chunk = stream->Next();
    if (!chunk.ok()) {
      answer.status = chunk.status();
      return answer;
    }
    answer.tokens.insert(answer.tokens.end(), chunk->token_ids.begin(), chunk->token_ids.end());
    answer.text += chunk->text;
    answer.logprobs.insert(answer.logprobs.end(), chunk->logprobs.begin(), chunk->logprobs.end());
    answer.finish = chunk->finish;
    answer.usage = chunk->usage;
    stream->AddCredit(chunk->token_ids.size());
    answer.chunks.push_back(*std::move(chunk));
  }
  return answer;
}

// Returns a greedy request that ignores the model's end tokens.
inline GenerationRequest MakeRequest(std::vector<int32_t> prompt, int64_t max_tokens) {
  GenerationRequest request;
  request.prompt_length = prompt.size();
  request.token_ids = std::move(prompt);
  request.stopping.max_tokens = max_tokens;
  request.stopping.ignore_eos = true;
  return request;
}

inline EngineOptions MakeOptions() {
  EngineOptions options;
  options.context_length = 4096;
  options.kv_memory_bytes = 1 << 20;
  options.max_sequences = 32;
  options.max_queued = 64;
  options.limits = {.rows = 64, .logit_rows = 32};
  options.prefill_chunk = 48;
  options.cache_seed = "test";
  return options;
}

// Returns the arena bytes for `blocks` blocks of a ScriptedModel with these options.
inline size_t MemoryOfBlocks(int64_t blocks, const fakes::ScriptedModelOptions& model = {}) {
  const int full_layers = model.window > 0 ? (model.layers + 1) / 2 : model.layers;
  return blocks * full_layers * 3 * sizeof(float) * kernels::kKvBlockTokens;
}

// An engine and the objects that it uses, declared so that each outlives its users.
struct TestEngine {
  explicit TestEngine(const EngineOptions& engine_options = MakeOptions(),
                      const fakes::ScriptedModelOptions& model_options = {})
      : tokenizer(fakes::MakeByteTokenizer()), model(model_options) {
    auto made = Engine::Create(&model, tokenizer.get(), &clock, engine_options);
    EXPECT_TRUE(made.ok()) << made.status();
    engine = *std::move(made);
  }

  std::unique_ptr<Stream> Submit(GenerationRequest request) {
    auto stream = engine->Submit(std::move(request));
    EXPECT_TRUE(stream.ok()) << stream.status();
    return stream.ok() ? *std::move(stream) : nullptr;
  }
  Answer Run(GenerationRequest request) { return ReadAll(Submit(std::move(request)).get()); }

  fakes::ManualClock clock;
  std::unique_ptr<Tokenizer> tokenizer;
  fakes::ScriptedModel model;
  std::unique_ptr<Engine> engine;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_TESTS_ENGINE_ENGINE_FIXTURE_H_
