// Loads directories that transformers saved, at least one for each family, and compares the results
// with those of transformers.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "engine/checkpoint/open_checkpoint.h"
#include "engine/tokenizer/load_tokenizer.h"
#include "engine/tokenizer/tokenizer.h"
#include "gtest/gtest.h"
#include "tests/engine/model/golden_data.h"

namespace tidepool::engine {
namespace {

using kernels::Precision;

constexpr char kFolder[] = "tests/golden/hf/";

std::string ModelPath(const std::string& name) { return kFolder + name; }
nlohmann::json Golden(const std::string& name) { return ReadJson(ModelPath(name) + ".json"); }

// Compares the logits of one pass, of chunks, and of a pass per token.
void CompareLogits(const std::string& name) {
  const LoadedModel loaded = Load(ModelPath(name), {.precision = Precision::kExact});
  const nlohmann::json golden = Golden(name);
  const auto ids = golden["ids"].get<std::vector<int32_t>>();
  ASSERT_GE(ids.size(), 40u);
  const auto truth = ReadNpy<float>(kFolder + golden["logits"].get<std::string>());
  for (const int64_t chunk_rows : {512, 5, 1}) {
    const std::vector<float> ours = AllLogits(loaded.model.get(), ids, chunk_rows);
    ASSERT_EQ(ours.size(), truth.values.size());
    const Difference difference = Compare(ours, truth.values);
    EXPECT_LE(difference.most, 1e-3) << chunk_rows;
    EXPECT_LE(difference.mean, 1e-4) << chunk_rows;
  }
}

void CompareGreedyIds(const std::string& name) {
  const LoadedModel loaded = Load(ModelPath(name), {.precision = Precision::kExact});
  const nlohmann::json golden = Golden(name);
  const auto ids = golden["ids"].get<std::vector<int32_t>>();
  const auto truth = golden["greedy"]["ids"].get<std::vector<int32_t>>();
  GreedyRun run(loaded.model.get(), ids.size() + truth.size());
  std::vector<int32_t> ours = {run.Next(ids)};
  while (ours.size() < truth.size()) ours.push_back(run.Next({ours.back()}));
  EXPECT_EQ(ours, truth);
}

// Tests of models without a tokenizer.
class HfFamilyTest : public testing::TestWithParam<const char*> {};

TEST_P(HfFamilyTest, ExactLogitsAgreeWithTransformers) { CompareLogits(GetParam()); }

TEST_P(HfFamilyTest, ExactGreedyIdsAreTransformers) { CompareGreedyIds(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    Families, HfFamilyTest,
    testing::Values("qwen2_vl", "qwen2_vl_flat", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe",
                    "qwen3_vl_moe_saved", "qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe",
                    "qwen3_5_moe_text", "lfm2", "lfm2_moe", "olmo2", "olmoe", "granite",
                    "granitemoe", "granitemoeshared", "phi3", "phi3_longrope_short",
                    "phi3_longrope_long", "smollm3", "gemma", "gemma2", "gemma3_text",
                    "gemma3_vision", "glm4", "glm4_moe", "ernie4_5", "ernie4_5_moe",
                    "hunyuan_v1_dense", "hunyuan_v1_moe", "seed_oss", "gpt_oss_mxfp4",
                    "gpt_oss_bf16", "deepseek_v2_lite", "deepseek_v2", "deepseek_v3",
                    "deepseek_v3_plain_yarn", "qwen3_yarn", "qwen3_dynamic", "llama_bias"),
    [](const auto& one) { return std::string(one.param); });

class HfModelTest : public testing::TestWithParam<const char*> {
 protected:
  std::string ModelPath() const { return engine::ModelPath(GetParam()); }
  nlohmann::json Golden() const { return engine::Golden(GetParam()); }
};

TEST_P(HfModelTest, ExactLogitsAgreeWithTransformers) { CompareLogits(GetParam()); }

TEST_P(HfModelTest, ExactGreedyIdsAreTransformers) { CompareGreedyIds(GetParam()); }

TEST_P(HfModelTest, TextBecomesTheReferencesTokens) {
  const auto file = OpenCheckpoint(ModelPath());
  ASSERT_TRUE(file.ok()) << file.status();
  const auto tokenizer = LoadTokenizer(*file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const nlohmann::json golden = Golden();
  const auto ids = (*tokenizer)
                       ->Encode(golden["text"].get<std::string>(), SpecialTokens::kAsText,
                                AddBos::kModelDefault);
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(*ids, golden["text_ids"].get<std::vector<int32_t>>());
  EXPECT_EQ((*tokenizer)->eos_text(), "<|im_end|>");
  EXPECT_EQ((*tokenizer)->stop_ids(), (std::vector<int32_t>{268, 270}));
  EXPECT_NE((*tokenizer)->spec().chat_template.find("<|im_start|>"), std::string::npos);
  EXPECT_TRUE((*tokenizer)->IsControl(268));
  EXPECT_EQ((*tokenizer)->type(271), TokenType::kUserDefined);
}

TEST_P(HfModelTest, GenerationConfigBecomesSamplingKeys) {
  const auto file = OpenCheckpoint(ModelPath());
  ASSERT_TRUE(file.ok()) << file.status();
  const nlohmann::json sampling = Golden()["sampling"];
  EXPECT_FLOAT_EQ(*file->Float("general.sampling.temp"), sampling["temperature"].get<float>());
  EXPECT_FLOAT_EQ(*file->Float("general.sampling.top_p"), sampling["top_p"].get<float>());
  EXPECT_EQ(*file->Int("general.sampling.top_k"), sampling["top_k"].get<int64_t>());
}

INSTANTIATE_TEST_SUITE_P(Families, HfModelTest,
                         testing::Values("llama_f32", "llama3_rope_bf16", "llama_yarn_f16",
                                         "mistral_window_bf16", "mixtral_bf16", "qwen2_f16",
                                         "qwen2_moe_bf16", "qwen3_bf16", "qwen3_moe_bf16"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace tidepool::engine
