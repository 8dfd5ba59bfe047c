// The ModelConfig that results from the rows of families.cc and from the keys of newer families.
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "engine/model/families.h"
#include "engine/model/model_config.h"
#include "gtest/gtest.h"
#include "kernels/base/check.h"
#include "tests/engine/checkpoint/gguf_writer.h"

namespace tidepool::engine {
namespace {

ModelConfig ParseOrDie(GgufWriter writer) {
  absl::StatusOr<GgufFile> file = GgufFile::Open(WriteTempFile("family.gguf", writer.Build()));
  CHECK_OK(file.status());
  absl::StatusOr<ModelConfig> config = ModelConfig::Parse(*file);
  CHECK_OK(config.status());
  return *std::move(config);
}

TEST(FamilyConfig, RowsAreDistinctAndNamed) {
  std::set<std::string> seen;
  for (const Family& family : Families()) {
    EXPECT_TRUE(seen.emplace(family.architecture).second) << family.architecture;
    EXPECT_FALSE(family.models.empty()) << family.architecture;
  }
}

TEST(FamilyConfig, PatternsSayWhichLayersHaveWindows) {
  const auto windows = [](const GgufWriter& writer) {
    std::vector<int64_t> found;
    for (const LayerConfig& layer : ParseOrDie(writer).layers) {
      found.push_back(layer.sliding_window);
    }
    return found;
  };
  const auto with_window = [](const std::string& architecture) {
    return TinyModel(architecture)
        .U32(architecture + ".block_count", 7)
        .U32(architecture + ".attention.sliding_window", 16);
  };
  using Windows = std::vector<int64_t>;
  EXPECT_EQ(windows(with_window("gemma2")), (Windows{16, 0, 16, 0, 16, 0, 16}));
  EXPECT_EQ(windows(TinyModel("gemma2")), (Windows{4096, 0}));
  EXPECT_EQ(windows(with_window("gemma3")), (Windows{16, 16, 16, 16, 16, 0, 16}));
  EXPECT_EQ(windows(with_window("gemma3").U32("gemma3.attention.sliding_window_pattern", 3)),
            (Windows{16, 16, 0, 16, 16, 0, 16}));
  // Qwen's converters write a window even for models that do not use it. Then they write no
  // pattern.
  EXPECT_EQ(windows(with_window("qwen2").Array("qwen2.attention.sliding_window_pattern",
                                               GgufValueType::kBool, 7,
                                               std::string("\0\0\0\1\1\1\1", 7))),
            (Windows{0, 0, 0, 16, 16, 16, 16}));
}

TEST(FamilyConfig, WindowLayersOfGemma3HaveTheirOwnRope) {
  const ModelConfig config = ParseOrDie(TinyModel("gemma3")
                                            .U32("gemma3.block_count", 6)
                                            .U32("gemma3.attention.sliding_window", 16)
                                            .F32("gemma3.rope.freq_base", 1e6f)
                                            .String("gemma3.rope.scaling.type", "linear")
                                            .F32("gemma3.rope.scaling.factor", 8));
  ASSERT_EQ(config.ropes.size(), 2u);
  EXPECT_EQ(config.layers[0].rope, 1);
  EXPECT_EQ(config.layers[5].rope, 0);
  EXPECT_DOUBLE_EQ(config.ropes[0].inv_freq[0], 0.125);
  EXPECT_DOUBLE_EQ(config.ropes[1].inv_freq[0], 1);
  EXPECT_DOUBLE_EQ(config.ropes[1].inv_freq[2], 0.01);
}

TEST(FamilyConfig, SomeLayersDoNotRotate) {
  const auto ropes = [](const GgufWriter& writer) {
    std::vector<int> found;
    for (const LayerConfig& layer : ParseOrDie(writer).layers) found.push_back(layer.rope);
    return found;
  };
  EXPECT_EQ(ropes(TinyModel("smollm3").U32("smollm3.block_count", 5)),
            (std::vector<int>{0, 0, 0, kNoRope, 0}));
  EXPECT_EQ(ropes(TinyModel("smollm3").Array("smollm3.rope.layers", GgufValueType::kBool, 2,
                                             std::string("\0\1", 2))),
            (std::vector<int>{kNoRope, 0}));
  EXPECT_EQ(ropes(TinyModel("granite").Bool("granite.rope.scaling.finetuned", false)),
            (std::vector<int>{kNoRope, kNoRope}));
  EXPECT_EQ(ropes(TinyModel("llama").Bool("llama.rope.scaling.finetuned", false)),
            (std::vector<int>{0, 0}));
}

TEST(FamilyConfig, GraniteHasFourMultipliers) {
  const ModelConfig config = ParseOrDie(TinyModel("granitemoe")
                                            .F32("granitemoe.embedding_scale", 12)
                                            .F32("granitemoe.residual_scale", 0.25f)
                                            .F32("granitemoe.logit_scale", 8)
                                            .F32("granitemoe.attention.scale", 0.5f));
  EXPECT_EQ(config.embedding_scale, 12);
  EXPECT_EQ(config.residual_scale, 0.25f);
  EXPECT_EQ(config.logit_scale, 0.125f);
  EXPECT_EQ(config.layers[1].attention_scale, 0.5f);
}

// Gemma 27B has heads of 128 dimensions, but its attention has the scale for 168.
TEST(FamilyConfig, GemmaScalesByWidthIn27B) {
  const auto scale = [](const GgufWriter& writer) {
    return ParseOrDie(writer).layers[0].attention_scale;
  };
  const auto big = [] {
    return TinyModel("gemma3")
        .U32("gemma3.block_count", 62)
        .U32("gemma3.attention.key_length", 16)
        .U32("gemma3.attention.value_length", 16);
  };
  EXPECT_EQ(scale(big()), static_cast<float>(1 / std::sqrt(8.0)));
  EXPECT_EQ(scale(big().U32("gemma3.block_count", 61)), 0.25f);
  EXPECT_EQ(scale(big().F32("gemma3.attention.scale", 0.375f)), 0.375f);
}

TEST(FamilyConfig, DraftLayersAreApart) {
  const ModelConfig config =
      ParseOrDie(TinyModel("glm4moe").U32("glm4moe.nextn_predict_layers", 1));
  EXPECT_EQ(config.layers.size(), 1u);
  EXPECT_EQ(config.draft_layers, 1);
}

TEST(FamilyConfig, MlaStoresOneCompressedVector) {
  const ModelConfig config = ParseOrDie(TinyModel("deepseek2")
                                            .U32("deepseek2.attention.head_count_kv", 1)
                                            .U32("deepseek2.attention.kv_lora_rank", 512)
                                            .U32("deepseek2.attention.key_length", 576)
                                            .U32("deepseek2.attention.value_length", 512)
                                            .U32("deepseek2.attention.key_length_mla", 192)
                                            .U32("deepseek2.attention.value_length_mla", 128)
                                            .U32("deepseek2.rope.dimension_count", 64));
  const LayerConfig& layer = config.layers[0];
  EXPECT_EQ(layer.head_dim, 576);
  EXPECT_EQ(layer.value_dim(), 512);
  EXPECT_EQ(layer.mla.nope_dim, 128);
  EXPECT_EQ(layer.attention_scale, static_cast<float>(1 / std::sqrt(192.0)));
  EXPECT_EQ(KvBytesPerToken(config, kernels::DType::kF16), 2 * 576 * 2);  // two layers
}

}  // namespace
}  // namespace tidepool::engine
