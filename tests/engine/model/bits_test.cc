// Batches, threads and the place of KV blocks must not change any bit of a model's logits.
#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/engine/model/golden_data.h"

namespace tidepool::engine {
namespace {

using kernels::DType;
using kernels::Isa;
using kernels::Precision;

struct BitsCase {
  const char* model;
  Precision precision;
  DType kv_dtype;
};

std::string Name(const testing::TestParamInfo<BitsCase>& test) {
  return std::string(test.param.model) +
         (test.param.precision == Precision::kExact ? "_exact_" : "_fast_") +
         std::string(kernels::DTypeName(test.param.kv_dtype));
}

// Returns the ids of a sequence that is longer than two KV blocks.
std::vector<int32_t> Ids(int64_t count, int seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % 256);
  return ids;
}

// Compares bytes, so that 0.0 differs from -0.0, and a NaN equals itself.
bool SameBits(absl::Span<const float> a, absl::Span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

RunOptions OptionsOf(const BitsCase& test_case) {
  return {.precision = test_case.precision, .kv_dtype = test_case.kv_dtype};
}

LoadedModel LoadWith(const BitsCase& test_case, const RunOptions& options) {
  return Load(std::string("tests/golden/tiny/") + test_case.model + ".gguf", options);
}

std::vector<float> Logits(const BitsCase& test_case, const RunOptions& options,
                          absl::Span<const int32_t> ids) {
  return AllLogits(LoadWith(test_case, options).model.get(), ids, 512);
}

// Returns the logits of the CPU's backend.
std::vector<float> Expected(const BitsCase& test_case, absl::Span<const int32_t> ids) {
  RunOptions options = OptionsOf(test_case);
  options.backend = TestBackend::kCpu;
  return Logits(test_case, options, ids);
}

class BitsTest : public testing::TestWithParam<BitsCase> {
 protected:
  static LoadedModel LoadDefault() { return LoadWith(GetParam(), OptionsOf(GetParam())); }
};

TEST_P(BitsTest, AnyChunkGivesTheSameBits) {
  const std::vector<int32_t> ids = Ids(150, 1);
  const LoadedModel loaded = LoadDefault();
  const std::vector<float> expected = Expected(GetParam(), ids);
  for (const int64_t chunk : {1, 7, 32, 64}) {
    EXPECT_TRUE(SameBits(AllLogits(loaded.model.get(), ids, chunk), expected)) << "chunk " << chunk;
  }
}

class IsaBitsTest : public testing::TestWithParam<std::tuple<BitsCase, Isa>> {};

TEST_P(IsaBitsTest, AnyThreadsAndIsaGiveTheSameBits) {
  const auto& [test_case, isa] = GetParam();
  if (const auto backend = kernels::MakeCpuBackend({.isa = isa}); !backend.ok()) {
    GTEST_SKIP() << backend.status().message();
  }
  const std::vector<int32_t> ids = Ids(90, 2);
  const std::vector<float> expected = Expected(test_case, ids);
  for (const int threads : {1, 2, 3}) {
    RunOptions options = OptionsOf(test_case);
    options.threads = threads;
    options.isa = isa;
    EXPECT_TRUE(SameBits(Logits(test_case, options, ids), expected)) << "threads " << threads;
  }
}

// The progress of one sequence through batches.
struct Walker {
  std::vector<int32_t> ids;
  std::vector<int32_t> blocks;
  int64_t done = 0;
  std::vector<float> logits;  // of all rows so far
};

// Random sequences continue in each batch. Their blocks are scattered over an arena full of NaNs.
TEST_P(BitsTest, BatchCompositionAndBlocksChangeNoBit) {
  const LoadedModel loaded = LoadDefault();
  TransformerModel& model = *loaded.model;
  std::mt19937 random(5);
  constexpr int kSequences = 4;
  constexpr int64_t kSlots = 128;
  const ContiguousKv kv(model, kSequences, kSlots);
  FillWithNans(model, kv.bytes());
  std::vector<int32_t> order(kSequences * kSlots / kernels::kKvBlockTokens);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  std::vector<Walker> walkers(kSequences);
  for (int i = 0; i < kSequences; ++i) {
    const int64_t blocks = kSlots / kernels::kKvBlockTokens;
    walkers[i].ids = Ids(40 + 29 * i, 10 + i);
    walkers[i].blocks.assign(order.begin() + i * blocks, order.begin() + (i + 1) * blocks);
  }
  kernels::Arena workspace(model.WorkspaceBytes({.rows = 200, .logit_rows = 200}), model.memory());
  FillWithNans(model, {workspace.Allocate<std::byte>(workspace.capacity()), workspace.capacity()});

  int64_t left = 0;
  for (const Walker& walker : walkers) left += static_cast<int64_t>(walker.ids.size());
  while (left > 0) {
    Batch batch;
    std::vector<Walker*> chosen;
    for (Walker& walker : walkers) {
      const int64_t rest = static_cast<int64_t>(walker.ids.size()) - walker.done;
      if (rest == 0 || random() % 3 == 0) continue;
      const int64_t rows = std::min<int64_t>(rest, 1 + (random() % 2) * (random() % 40));
      RowSpan span;
      span.first_slot = walker.done;
      span.token_ids.assign(walker.ids.begin() + walker.done,
                            walker.ids.begin() + walker.done + rows);
      span.logit_rows.resize(rows);
      std::iota(span.logit_rows.begin(), span.logit_rows.end(), 0);
      span.blocks = {walker.blocks};
      batch.spans.push_back(std::move(span));
      chosen.push_back(&walker);
      walker.done += rows;
      left -= rows;
    }
    if (batch.spans.empty()) continue;
    const auto step = model.Forward(batch, kv.view(), &workspace);
    ASSERT_TRUE(step.ok()) << step.status();
    int64_t row = 0;
    for (size_t s = 0; s < chosen.size(); ++s) {
      for (int64_t i = 0; i < batch.spans[s].rows(); ++i, ++row) {
        const float* logits = step->logits.Row(row);
        chosen[s]->logits.insert(chosen[s]->logits.end(), logits, logits + step->logits.cols);
      }
    }
  }
  for (const Walker& walker : walkers) {
    EXPECT_TRUE(SameBits(walker.logits, AllLogits(&model, walker.ids, 512)))
        << walker.ids.size() << " tokens";
  }
}

// Only some rows request logits: these rows are equal and in order.
TEST_P(BitsTest, WantedRowsAreThoseOfAllRows) {
  const LoadedModel loaded = LoadDefault();
  TransformerModel& model = *loaded.model;
  const std::vector<int32_t> ids = Ids(33, 4);
  const std::vector<float> all = AllLogits(&model, ids, 512);
  const ContiguousKv kv(model, 1, 64);
  kernels::Arena workspace(model.WorkspaceBytes({.rows = 33, .logit_rows = 3}), model.memory());
  Batch batch;
  batch.spans.resize(1);
  batch.spans[0].token_ids = ids;
  batch.spans[0].logit_rows = {0, 17, 32};
  batch.spans[0].blocks = kv.blocks(0);
  const auto step = model.Forward(batch, kv.view(), &workspace);
  ASSERT_TRUE(step.ok());
  ASSERT_EQ(step->logits.rows, 3);
  for (int i = 0; i < 3; ++i) {
    const int64_t cols = step->logits.cols;
    EXPECT_TRUE(
        SameBits(absl::MakeConstSpan(step->logits.Row(i), cols),
                 absl::MakeConstSpan(all).subspan(batch.spans[0].logit_rows[i] * cols, cols)));
  }
}

// The "quants" models have the ten types that no other model has.
constexpr BitsCase kCases[] = {{"llama_f32", Precision::kFast, DType::kF16},
                               {"llama3_rope_f16", Precision::kFast, DType::kF16},
                               {"llama3_rope_f16", Precision::kExact, DType::kF32},
                               {"mistral_bf16", Precision::kFast, DType::kBF16},
                               {"mixtral_q4_0", Precision::kFast, DType::kF16},
                               {"mixtral_q4_0", Precision::kExact, DType::kF32},
                               {"qwen2_q8_0", Precision::kFast, DType::kF16},
                               {"qwen2_q8_0", Precision::kExact, DType::kF32},
                               {"qwen3_f32", Precision::kFast, DType::kQ8_0},
                               {"qwen2moe_f32", Precision::kExact, DType::kF32},
                               {"qwen3moe_q4_1", Precision::kFast, DType::kF16},
                               {"qwen3moe_q4_1", Precision::kExact, DType::kF32},
                               {"llama_quants", Precision::kFast, DType::kF16},
                               {"llama_quants", Precision::kExact, DType::kF32},
                               {"qwen3moe_quants", Precision::kFast, DType::kBF16},
                               {"qwen3moe_quants", Precision::kExact, DType::kF32}};

INSTANTIATE_TEST_SUITE_P(All, BitsTest, testing::ValuesIn(kCases), Name);

INSTANTIATE_TEST_SUITE_P(All, IsaBitsTest,
                         testing::Combine(testing::ValuesIn(kCases),
                                          testing::Values(Isa::kPortable, Isa::kAvx2, Isa::kAvx512,
                                                          Isa::kAvx512Vnni)));

}  // namespace
}  // namespace tidepool::engine
