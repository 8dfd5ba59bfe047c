// The ModelConfig of models in which some layers have no attention.
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "engine/model/model_config.h"
#include "gtest/gtest.h"
#include "tests/engine/checkpoint/gguf_writer.h"

namespace tidepool::engine {
namespace {

absl::StatusOr<ModelConfig> Parse(GgufWriter writer) {
  absl::StatusOr<GgufFile> file = GgufFile::Open(WriteTempFile("mixer.gguf", writer.Build()));
  if (!file.ok()) return file.status();
  return ModelConfig::Parse(*file);
}

// Returns the metadata of four layers. The delta nets have 2 K heads and 6 V heads.
GgufWriter Qwen35() {
  return TinyModel("qwen35")
      .U32("qwen35.block_count", 4)
      .U32("qwen35.attention.key_length", 16)
      .U32("qwen35.attention.value_length", 16)
      .U32("qwen35.rope.dimension_count", 8)
      .I32s("qwen35.rope.dimension_sections", {2, 1, 1, 0})
      .U32("qwen35.ssm.conv_kernel", 4)
      .U32("qwen35.ssm.state_size", 12)
      .U32("qwen35.ssm.group_count", 2)
      .U32("qwen35.ssm.time_step_rank", 6)
      .U32("qwen35.ssm.inner_size", 60);
}

GgufWriter Lfm2() {
  return TinyModel("lfm2")
      .U32("lfm2.block_count", 3)
      .I32s("lfm2.attention.head_count_kv", {0, 2, 0})
      .U32("lfm2.shortconv.l_cache", 3);
}

std::string Mixers(const absl::StatusOr<ModelConfig>& config) {
  if (!config.ok()) return std::string(config.status().message());
  std::string text;
  for (const LayerConfig& layer : config->layers) {
    text += layer.mixer == Mixer::kAttention ? 'A' : layer.mixer == Mixer::kDeltaNet ? 'D' : 'C';
  }
  return text;
}

TEST(MixerConfig, EveryFourthLayerOfQwen35HasAttention) {
  const auto config = Parse(Qwen35());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(Mixers(config), "DDDA");
  const LayerConfig& attention = config->layers[3];
  EXPECT_TRUE(attention.gated);
  EXPECT_EQ(attention.qk_norm, QkNorm::kHead);
  EXPECT_EQ(attention.heads, 4);
  EXPECT_EQ(attention.head_dim, 16);
  EXPECT_EQ(attention.rope, 0);
  EXPECT_EQ(&config->attention_layer(), &attention);
  const LayerConfig& delta = config->layers[0];
  EXPECT_EQ(delta.rope, kNoRope);
  EXPECT_EQ(delta.conv_width, 4);
  EXPECT_EQ(delta.delta.k_heads, 2);
  EXPECT_EQ(delta.delta.v_heads, 6);
  EXPECT_EQ(delta.delta.k_dim, 12);
  EXPECT_EQ(delta.delta.v_dim, 10);
  EXPECT_EQ(delta.delta.channels(), 2 * 24 + 60);
  EXPECT_EQ(delta.delta.order, kernels::HeadOrder::kTiled);
  EXPECT_EQ(config->ropes[0].dims, 8);
  EXPECT_EQ(config->ropes[0].sections, (std::array<int, 4>{2, 1, 1, 0}));
  // Only one layer has KV: keys and values of 2 heads.
  EXPECT_EQ(KvBytesPerToken(*config, kernels::DType::kF16), 2 * 2 * 16 * 2);
  EXPECT_TRUE(config->CanStoreKv(kernels::DType::kF16));
  EXPECT_FALSE(config->CanStoreKv(kernels::DType::kQ8_0));  // heads of 16
  EXPECT_GT(AttentionDepth(*config), 0);
}

TEST(MixerConfig, KeysSayWhichLayersHaveAttention) {
  const auto with_layers = [](uint64_t count, const std::string& recurrent) {
    return Parse(Qwen35().Array("qwen35.attention.recurrent_layers", GgufValueType::kBool, count,
                                recurrent));
  };
  EXPECT_EQ(Mixers(Parse(Qwen35().U32("qwen35.full_attention_interval", 2))), "DADA");
  EXPECT_EQ(Mixers(Parse(Qwen35().U32("qwen35.full_attention_interval", 1))), "AAAA");
  EXPECT_EQ(Mixers(with_layers(4, std::string("\0\1\1\0", 4))), "ADDA");
  EXPECT_EQ(Mixers(Parse(Lfm2())), "CAC");
  EXPECT_TRUE(absl::StrContains(Mixers(with_layers(3, std::string("\0\1\1", 3))),
                                "expected one for each of 4 layers"));
  EXPECT_TRUE(absl::StrContains(Mixers(with_layers(4, std::string("\1\1\1\1", 4))),
                                "no layer has attention"));
  EXPECT_TRUE(
      absl::StrContains(Mixers(Parse(Lfm2().I32s("lfm2.attention.head_count_kv", {0, 0, 0}))),
                        "no layer has attention"));
  EXPECT_TRUE(absl::StrContains(
      Mixers(Parse(TinyModel("qwen3").I32s("qwen3.attention.head_count_kv", {0, 2}))),
      "layers without attention are not supported"));
}

TEST(MixerConfig, DraftLayersHaveAttention) {
  const auto config = Parse(Qwen35()
                                .U32("qwen35.block_count", 5)
                                .U32("qwen35.nextn_predict_layers", 1)
                                .Array("qwen35.attention.recurrent_layers", GgufValueType::kBool, 5,
                                       std::string("\1\0\1\0\0", 5)));
  EXPECT_EQ(Mixers(config), "DADA");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->draft_layers, 1);
}

TEST(MixerConfig, ExpertsOfLfm2AreNormalisedWithAnEpsilon) {
  const auto config = Parse(TinyModel("lfm2moe")
                                .I32s("lfm2moe.attention.head_count_kv", {0, 2})
                                .U32("lfm2moe.leading_dense_block_count", 1)
                                .U32("lfm2moe.expert_gating_func", 2)
                                .U32("lfm2moe.shortconv.l_cache", 3));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->moe.normalize_epsilon, 1e-6f);
  EXPECT_TRUE(config->moe.normalize_weights);
  EXPECT_EQ(config->layers[0].ffn, FfnKind::kDense);
}

TEST(MixerConfig, SizesThatDoNotFitAreRefused) {
  const auto refusal = [](GgufWriter writer, const std::string& words) {
    const std::string text = Mixers(Parse(std::move(writer)));
    EXPECT_TRUE(absl::StrContains(text, words)) << text;
  };
  refusal(Qwen35().U32("qwen35.ssm.group_count", 4),
          "ssm.group_count: 4, expected a divisor of 6, ssm.time_step_rank");
  refusal(Qwen35().U32("qwen35.ssm.inner_size", 61),
          "ssm.inner_size: 61, expected a multiple of 6, ssm.time_step_rank");
  refusal(Qwen35().U32("qwen35.ssm.state_size", 257), "ssm.state_size: 257, expected 1 to 256");
  refusal(Qwen35().U32("qwen35.ssm.conv_kernel", 1), "ssm.conv_kernel: 1, expected 2 to 8");
  refusal(Qwen35().Remove("qwen35.ssm.conv_kernel"), "ssm.conv_kernel");
  refusal(Lfm2().U32("lfm2.shortconv.l_cache", 9), "shortconv.l_cache: 9, expected 2 to 8");
  refusal(Qwen35().I32s("qwen35.rope.dimension_sections", {2, 2, 2, 0}),
          "expected 3 or 4 numbers of pairs, at most 4 in all");
  refusal(Qwen35().I32s("qwen35.rope.dimension_sections", {5, -1}), "expected 3 or 4 numbers");
  // The V heads of this file have another order.
  refusal(Qwen35().Bool("qwen35.ssm.v_head_reordered", true), "ssm.v_head_reordered");
}

}  // namespace
}  // namespace tidepool::engine
