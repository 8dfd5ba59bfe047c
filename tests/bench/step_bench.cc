// Measures the engine's overhead per token, without the arithmetic: the model is so small (hidden
// size 32, 259 tokens) that its products cost next to nothing. One sequence decodes 64 tokens
// greedily. The model with one layer shows the engine's own work; the model with 30 layers adds the
// loop over the layers of a real model.
//
//   step_bench [THREADS...]        default 1 2
//
// For each number of threads and layers it prints microseconds per token, as median and quartiles
// of 200 runs: through the engine (plan, forward, sample, commit, delivery) and for the forward
// pass alone. The stream is not read during a run. The time to start a request is subtracted: a run
// of one token measures it.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/weight_store.h"
#include "engine/engine.h"
#include "engine/model/contiguous_kv.h"
#include "engine/model/transformer.h"
#include "kernels/base/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/engine/checkpoint/gguf_writer.h"
#include "tests/fakes/byte_tokenizer.h"

namespace tidepool::engine {
namespace {

constexpr uint64_t kHidden = 32;
constexpr int kTokens = 64;
constexpr int kRuns = 200;

std::string ModelFile(int layers) {
  GgufWriter writer;
  writer.String("general.architecture", "llama")
      .U32("llama.block_count", layers)
      .U32("llama.context_length", 2048)
      .U32("llama.embedding_length", kHidden)
      .U32("llama.feed_forward_length", kHidden)
      .U32("llama.attention.head_count", 2)
      .U32("llama.attention.head_count_kv", 1)
      .U32("llama.rope.dimension_count", kHidden / 2)
      .F32("llama.attention.layer_norm_rms_epsilon", 1e-5f)
      .U32("llama.vocab_size", fakes::kByteVocabSize);
  uint32_t state = 1;
  const auto add = [&](const std::string& name, const std::vector<uint64_t>& dims) {
    if (dims.size() == 1) {
      writer.F32Tensor(name, dims, std::vector<float>(dims[0], 1.0f));
      return;
    }
    std::string blocks;  // Q8_0: a scale of 2^-9 and 32 random quants
    for (uint64_t block = 0; block < dims[0] * dims[1] / 32; ++block) {
      blocks += BytesOf<uint16_t>(0x1800);
      for (int i = 0; i < 32; ++i) {
        state = state * 1664525 + 1013904223;
        blocks += static_cast<char>(state >> 24);
      }
    }
    writer.Tensor(name, GgmlType::kQ8_0, dims, blocks);
  };
  add("token_embd.weight", {kHidden, fakes::kByteVocabSize});
  add("output_norm.weight", {kHidden});
  for (int layer = 0; layer < layers; ++layer) {
    const std::string prefix = absl::StrCat("blk.", layer, ".");
    for (const char* norm : {"attn_norm", "ffn_norm"}) {
      add(absl::StrCat(prefix, norm, ".weight"), {kHidden});
    }
    for (const char* square : {"attn_q", "attn_output", "ffn_gate", "ffn_up", "ffn_down"}) {
      add(absl::StrCat(prefix, square, ".weight"), {kHidden, kHidden});
    }
    for (const char* half : {"attn_k", "attn_v"}) {
      add(absl::StrCat(prefix, half, ".weight"), {kHidden, kHidden / 2});
    }
  }
  return WriteTempFile("step_bench.gguf", writer.Build());
}

struct Figures {
  std::vector<double> microseconds;  // per token, by run

  void Print(const char* what, int threads, int layers) {
    std::sort(microseconds.begin(), microseconds.end());
    const size_t runs = microseconds.size();
    std::printf("%d threads, layers: %2d, %s: %.1f us a token (quartiles %.1f, %.1f)\n", threads,
                layers, what, microseconds[runs / 2], microseconds[runs / 4],
                microseconds[3 * runs / 4]);
  }
};

// Returns the time of `run` in microseconds.
template <typename Run>
double Measure(Run run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  return taken.count() * 1e6;
}

double MeasureRequest(Engine* engine, int tokens) {
  GenerationRequest request;
  request.token_ids = {1};
  request.prompt_length = 1;
  request.stopping.max_tokens = tokens;
  request.stopping.ignore_eos = true;
  request.credit = tokens;
  return Measure([&] {
    const auto stream = *engine->Submit(std::move(request));
    CHECK(engine->WaitIdle(absl::Minutes(1)));
  });
}

Figures MeasureEngine(TransformerModel* model) {
  const std::unique_ptr<Tokenizer> tokenizer = fakes::MakeByteTokenizer();
  EngineOptions options;
  options.context_length = 1024;
  options.kv_memory_bytes = 64 << 20;
  auto engine = *Engine::Create(model, tokenizer.get(), &base::Clock::Real(), options);
  Figures figures;
  for (int run = 0; run < kRuns; ++run) {
    const double start = MeasureRequest(engine.get(), 1);
    const double whole = MeasureRequest(engine.get(), kTokens);
    figures.microseconds.push_back((whole - start) / (kTokens - 1));
  }
  return figures;
}

Figures MeasureForward(TransformerModel* model) {
  const ContiguousKv kv(*model, 1, kTokens);
  kernels::Arena workspace(model->WorkspaceBytes({.rows = 1, .logit_rows = 1}), model->memory());
  Batch batch;
  batch.spans.resize(1);
  batch.spans[0].token_ids = {1};
  batch.spans[0].logit_rows = {0};
  batch.spans[0].argmax_vocab = model->vocab_size();
  batch.spans[0].blocks = kv.blocks(0);
  Figures figures;
  for (int run = 0; run < kRuns; ++run) {
    const double taken = Measure([&] {
      for (int i = 0; i < kTokens; ++i) {
        batch.spans[0].first_slot = i;
        CHECK_OK(model->Forward(batch, kv.view(), &workspace).status());
      }
    });
    figures.microseconds.push_back(taken / kTokens);
  }
  return figures;
}

void Run(int threads, int layers) {
  auto file = *GgufFile::Open(ModelFile(layers));
  const ModelConfig config = *ModelConfig::Parse(file);
  const auto store = *WeightStore::Create(std::move(file), {.threads = 1});
  const auto backend = *kernels::MakeCpuBackend({.threads = threads});
  const auto model = *TransformerModel::Create(config, store.get(), backend.get(), {});
  MeasureEngine(model.get()).Print("the whole step", threads, layers);
  MeasureForward(model.get()).Print("the forward pass", threads, layers);
}

}  // namespace
}  // namespace tidepool::engine

int main(int argc, char** argv) {
  std::vector<int> counts;
  for (int i = 1; i < argc; ++i) counts.push_back(std::max(1, std::atoi(argv[i])));
  if (counts.empty()) counts = {1, 2};
  for (const int threads : counts) {
    for (const int layers : {1, 30}) tidepool::engine::Run(threads, layers);
  }
}
