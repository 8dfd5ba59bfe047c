// Compares a tiny model of each family with transformers. The files have the metadata that
// llama.cpp's converter writes.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "engine/model/families.h"
#include "gtest/gtest.h"
#include "kernels/base/check.h"
#include "tests/engine/model/golden_data.h"

namespace tidepool::engine {
namespace {

using kernels::DType;
using kernels::Isa;
using kernels::Precision;

constexpr char kFolder[] = "tests/golden/families/";

class FamilyModelTest : public testing::TestWithParam<const char*> {
 protected:
  LoadedModel LoadWith(const RunOptions& options) const {
    return Load(std::string(kFolder) + GetParam() + ".gguf", options);
  }
  std::vector<int32_t> Ids() const {
    return ReadJson(std::string(kFolder) + GetParam() + ".json")["ids"].get<std::vector<int32_t>>();
  }
};

TEST_P(FamilyModelTest, ExactLogitsAgreeWithTransformers) {
  const LoadedModel loaded = LoadWith({.precision = Precision::kExact});
  const std::vector<int32_t> ids = Ids();
  ASSERT_GE(ids.size(), 40u);
  const auto truth = ReadNpy<float>(std::string(kFolder) + GetParam() + ".npy");
  for (const int64_t chunk_rows : {512, 5, 1}) {
    const std::vector<float> ours = AllLogits(loaded.model.get(), ids, chunk_rows);
    ASSERT_EQ(ours.size(), truth.values.size());
    const Difference difference = Compare(ours, truth.values);
    EXPECT_LE(difference.most, 1e-3) << chunk_rows;
    EXPECT_LE(difference.mean, 1e-4) << chunk_rows;
  }
}

TEST_P(FamilyModelTest, ChunksThreadsAndIsaChangeNoBit) {
  const std::vector<int32_t> ids = Ids();
  const auto logits = [&](Isa isa, int threads, int64_t chunk_rows,
                          TestBackend backend = TestBackend::kFromEnvironment) {
    const LoadedModel loaded = LoadWith({.precision = Precision::kFast,
                                         .kv_dtype = DType::kF16,
                                         .isa = isa,
                                         .threads = threads,
                                         .backend = backend});
    return AllLogits(loaded.model.get(), ids, chunk_rows);
  };
  const std::vector<float> expected = logits(Isa::kBest, 1, 512, TestBackend::kCpu);
  const auto same = [&](const std::vector<float>& other) {
    return other.size() == expected.size() &&
           std::memcmp(other.data(), expected.data(), expected.size() * sizeof(float)) == 0;
  };
  for (const int64_t chunk_rows : {1, 5, 31}) {
    EXPECT_TRUE(same(logits(Isa::kBest, 2, chunk_rows))) << "chunk " << chunk_rows;
  }
  EXPECT_TRUE(same(logits(Isa::kPortable, 1, 512)));
}

// Also checks that the workspace is exactly as large as needed for logits, and large enough for
// argmax.
TEST_P(FamilyModelTest, ArgMaxIsThatOfTheLogits) {
  const LoadedModel loaded = LoadWith({.precision = Precision::kFast});
  TransformerModel& model = *loaded.model;
  RowSpan span;
  span.token_ids = Ids();
  span.logit_rows.resize(span.token_ids.size());
  std::iota(span.logit_rows.begin(), span.logit_rows.end(), 0);
  const ContiguousKv kv(model, 1, span.rows());
  kv.SetBlocks(0, &span);
  kernels::Arena workspace(model.WorkspaceBytes({.rows = span.rows(), .logit_rows = span.rows()}),
                           model.memory());
  const auto full = model.Forward({.spans = {span}}, kv.view(), &workspace);
  ASSERT_TRUE(full.ok()) << full.status();
  EXPECT_EQ(workspace.high_water(), workspace.capacity());
  std::vector<int32_t> expected;
  for (int64_t row = 0; row < full->logits.rows; ++row) {
    const float* logits = full->logits.Row(row);
    expected.push_back(
        static_cast<int32_t>(std::max_element(logits, logits + full->logits.cols) - logits));
  }
  span.argmax_vocab = model.vocab_size();
  const auto best = model.Forward({.spans = {span}}, kv.view(), &workspace);
  ASSERT_TRUE(best.ok()) << best.status();
  ASSERT_EQ(best->argmax.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(best->argmax[i].index, expected[i]) << i;
}

TEST_P(FamilyModelTest, ADryRunMeasuresTheWorkspaceOfChunks) {
  const std::vector<int32_t> ids = Ids();
  const auto total = static_cast<int64_t>(ids.size());
  for (const Precision precision : {Precision::kFast, Precision::kExact}) {
    const LoadedModel loaded = LoadWith({.precision = precision, .threads = 2});
    for (const int64_t rows : {int64_t{1}, int64_t{5}, int64_t{31}, total}) {
      ContiguousKv kv(*loaded.model, 1, total);
      kernels::Arena workspace(loaded.model->WorkspaceBytes({.rows = rows, .logit_rows = rows}),
                               loaded.model->memory());
      for (int64_t first = 0; first < total; first += rows) {
        RowSpan span;
        span.first_slot = first;
        span.slot_limit = total;
        span.token_ids.assign(ids.begin() + first, ids.begin() + std::min(total, first + rows));
        span.logit_rows.resize(span.token_ids.size());
        std::iota(span.logit_rows.begin(), span.logit_rows.end(), 0);
        kv.SetBlocks(0, &span);
        const auto step = loaded.model->Forward({.spans = {span}}, kv.view(), &workspace);
        ASSERT_TRUE(step.ok()) << step.status();
        kv.Commit(0);
      }
      EXPECT_EQ(workspace.high_water(), workspace.capacity())
          << rows << " rows, " << (precision == Precision::kExact ? "exact" : "fast");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyModelTest,
                         testing::Values("deepseek_v2", "deepseek_v3", "dots1", "ernie4_5",
                                         "ernie4_5_moe", "gemma", "gemma2", "gemma3", "glm4",
                                         "glm4moe", "glm4moe_plain", "gpt_oss", "granite",
                                         "granitemoe", "granitemoeshared", "hunyuan_dense",
                                         "hunyuan_moe", "lfm2", "lfm2moe", "olmo2", "olmo3",
                                         "olmoe", "phi3", "phi3_long", "phi3_short", "qwen2vl",
                                         "qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe",
                                         "qwen3next", "qwen3next_fused", "seed_oss", "smollm3"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace tidepool::engine
