#include "engine/model/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "tests/engine/checkpoint/gguf_writer.h"

namespace tidepool::engine {
namespace {

using kernels::RopeStyle;
using ::testing::HasSubstr;

absl::StatusOr<ModelConfig> Parse(GgufWriter writer) {
  absl::StatusOr<GgufFile> file = GgufFile::Open(WriteTempFile("some-model.gguf", writer.Build()));
  CHECK_OK(file.status());
  return ModelConfig::Parse(*file);
}

ModelConfig ParseOrDie(const GgufWriter& writer) {
  absl::StatusOr<ModelConfig> config = Parse(writer);
  CHECK_OK(config.status());
  return *std::move(config);
}

TEST(ModelConfig, Llama) {
  const ModelConfig config = ParseOrDie(TinyModel("llama"));
  EXPECT_EQ(config.architecture, "llama");
  EXPECT_EQ(config.name, "tiny");
  EXPECT_EQ(config.vocab_size, 4);
  EXPECT_EQ(config.hidden_size, 32);
  EXPECT_EQ(config.context_length, 128);
  EXPECT_EQ(config.norm_eps, 1e-5f);
  EXPECT_EQ(config.moe_layers(), 0);
  ASSERT_EQ(config.layers.size(), 2u);
  for (const LayerConfig& layer : config.layers) {
    EXPECT_EQ(layer.heads, 4);
    EXPECT_EQ(layer.kv_heads, 2);
    EXPECT_EQ(layer.ffn, FfnKind::kDense);
    EXPECT_EQ(layer.ffn_width, 64);
    EXPECT_EQ(layer.sliding_window, 0);
    EXPECT_EQ(layer.head_dim, 8);
    EXPECT_EQ(layer.attention_scale, static_cast<float>(1 / std::sqrt(8.0)));
    EXPECT_EQ(layer.attention_softcap, 0);
    EXPECT_EQ(layer.qk_norm, QkNorm::kNone);
    EXPECT_EQ(layer.norms, NormPlacement::kPre);
    EXPECT_EQ(layer.rope, 0);
    EXPECT_EQ(layer.glu, kernels::GluForm::kSwiGlu);
  }
  EXPECT_EQ(config.embedding_scale, 1);
  EXPECT_EQ(config.residual_scale, 1);
  EXPECT_EQ(config.logit_scale, 1);
  ASSERT_EQ(config.ropes.size(), 1u);
  const RopeConfig& rope = config.ropes[0];
  EXPECT_EQ(rope.style, RopeStyle::kInterleaved);
  EXPECT_EQ(rope.dims, 8);
  EXPECT_EQ(rope.scale, 1.0f);
  ASSERT_EQ(rope.inv_freq.size(), 4u);
  EXPECT_EQ(rope.inv_freq[0], 1.0);
  EXPECT_DOUBLE_EQ(rope.inv_freq[2], 0.01);  // 10000^(-4/8)
}

TEST(ModelConfig, Families) {
  struct Expectation {
    std::string architecture;
    RopeStyle style;
    bool qk_norm;
    bool moe;
    bool normalize;
    int shared_width;
  };
  const std::vector<Expectation> expectations = {
      {"llama", RopeStyle::kInterleaved, false, false, false, 0},
      {"qwen2", RopeStyle::kHalves, false, false, false, 0},
      {"qwen2moe", RopeStyle::kHalves, false, true, false, 64},
      {"qwen3", RopeStyle::kHalves, true, false, false, 0},
      {"qwen3moe", RopeStyle::kHalves, true, true, true, 0},
  };
  for (const Expectation& expected : expectations) {
    SCOPED_TRACE(expected.architecture);
    const ModelConfig config = ParseOrDie(TinyModel(expected.architecture));
    EXPECT_EQ(config.ropes[0].style, expected.style);
    EXPECT_EQ(config.layers[0].qk_norm == QkNorm::kHead, expected.qk_norm);
    EXPECT_EQ(config.moe_layers() > 0, expected.moe);
    EXPECT_EQ(config.moe.normalize_weights, expected.normalize);
    EXPECT_EQ(config.moe.shared_width, expected.shared_width);
    EXPECT_EQ(config.moe.experts, expected.moe ? 8 : 0);
    EXPECT_EQ(config.moe.experts_used, expected.moe ? 2 : 0);
    EXPECT_EQ(config.moe.expert_width, expected.moe ? 16 : 0);
    EXPECT_EQ(config.layers[1].ffn, expected.moe ? FfnKind::kMoe : FfnKind::kDense);
  }
}

TEST(ModelConfig, MixtralExpertsAreAsWideAsTheFfn) {
  const ModelConfig config =
      ParseOrDie(TinyModel("llama").U32("llama.expert_count", 8).U32("llama.expert_used_count", 2));
  EXPECT_EQ(config.moe.expert_width, 64);
  EXPECT_EQ(config.moe.shared_width, 0);
  EXPECT_TRUE(config.moe.normalize_weights);
}

TEST(ModelConfig, OldQwenMoeFilesHaveOneWidth) {
  const ModelConfig config =
      ParseOrDie(TinyModel("qwen2moe").Remove("qwen2moe.expert_feed_forward_length"));
  EXPECT_EQ(config.moe.expert_width, 32);  // 64 / 2 experts used
  EXPECT_EQ(config.moe.shared_width, 64);
}

TEST(ModelConfig, KeysOverrideFamilyDefaults) {
  const ModelConfig config = ParseOrDie(TinyModel("qwen2moe")
                                            .Bool("qwen2moe.expert_weights_norm", true)
                                            .U32("qwen2moe.expert_shared_feed_forward_length", 48)
                                            .U32("qwen2moe.leading_dense_block_count", 1)
                                            .U32("qwen2moe.attention.key_length", 16)
                                            .U32("qwen2moe.attention.value_length", 16)
                                            .U32("qwen2moe.rope.dimension_count", 4)
                                            .F32("qwen2moe.rope.freq_base", 1e6f));
  EXPECT_TRUE(config.moe.normalize_weights);
  EXPECT_EQ(config.moe.shared_width, 48);
  EXPECT_EQ(config.layers[0].ffn, FfnKind::kDense);
  EXPECT_EQ(config.layers[0].ffn_width, 64);
  EXPECT_EQ(config.layers[1].ffn, FfnKind::kMoe);
  EXPECT_EQ(config.layers[1].ffn_width, 0);
  EXPECT_EQ(config.layers[0].head_dim, 16);
  EXPECT_EQ(config.ropes[0].dims, 4);
  EXPECT_DOUBLE_EQ(config.ropes[0].inv_freq[1], 1e-3);
}

TEST(ModelConfig, PerLayerArrays) {
  const ModelConfig config = ParseOrDie(TinyModel("llama")
                                            .I32s("llama.attention.head_count_kv", {4, 1})
                                            .I32s("llama.feed_forward_length", {32, 96}));
  EXPECT_EQ(config.layers[0].kv_heads, 4);
  EXPECT_EQ(config.layers[1].kv_heads, 1);
  EXPECT_EQ(config.layers[0].ffn_width, 32);
  EXPECT_EQ(config.layers[1].ffn_width, 96);
}

TEST(ModelConfig, KvHeadsDefaultToHeads) {
  const ModelConfig config = ParseOrDie(TinyModel("llama").Remove("llama.attention.head_count_kv"));
  EXPECT_EQ(config.layers[0].kv_heads, 4);
}

TEST(ModelConfig, WindowIsMistralsNotQwens) {
  EXPECT_EQ(ParseOrDie(TinyModel("llama").U32("llama.attention.sliding_window", 16))
                .layers[1]
                .sliding_window,
            16);
  EXPECT_EQ(ParseOrDie(TinyModel("qwen2").U32("qwen2.attention.sliding_window", 16))
                .layers[1]
                .sliding_window,
            0);
}

TEST(ModelConfig, VocabularyIsTheEmbeddings) {
  GgufWriter padded = TinyModel("llama");
  padded.F32Tensor("token_embd.weight", {32, 6}, std::vector<float>(192));
  EXPECT_EQ(ParseOrDie(padded).vocab_size, 6);

  GgufWriter short_one = TinyModel("llama");
  short_one.F32Tensor("token_embd.weight", {32, 3}, std::vector<float>(96));
  EXPECT_THAT(
      std::string(Parse(short_one).status().message()),
      HasSubstr("token_embd.weight: 3 rows, expected 4, one for each of the tokenizer's tokens"));

  EXPECT_EQ(
      ParseOrDie(TinyModel("llama").Remove("tokenizer.ggml.tokens").U32("llama.vocab_size", 9))
          .vocab_size,
      9);
}

TEST(ModelConfig, NameFallsBackToTheFiles) {
  EXPECT_EQ(ParseOrDie(TinyModel("llama").Remove("general.name")).name, "some-model");
}

TEST(ModelConfig, LinearScaling) {
  const auto third = [](GgufWriter writer) { return ParseOrDie(writer).ropes[0].inv_freq[2]; };
  EXPECT_DOUBLE_EQ(third(TinyModel("llama")
                             .String("llama.rope.scaling.type", "linear")
                             .F32("llama.rope.scaling.factor", 4)),
                   0.0025);
  EXPECT_DOUBLE_EQ(third(TinyModel("llama").F32("llama.rope.scale_linear", 4)), 0.0025);
  EXPECT_DOUBLE_EQ(third(TinyModel("llama").F32("llama.rope.scaling.factor", 0)), 0.01);
  EXPECT_DOUBLE_EQ(third(TinyModel("llama")
                             .String("llama.rope.scaling.type", "none")
                             .F32("llama.rope.scaling.factor", 4)),
                   0.01);
}

// A rotary embedding of 64 dimensions with base 150000 is scaled 32 times from 4096 positions. The
// expected values are from the formula, which agrees with two other implementations.
TEST(ModelConfig, YarnScaling) {
  const ModelConfig config =
      ParseOrDie(TinyModel("qwen3")
                     .U32("qwen3.attention.key_length", 64)
                     .U32("qwen3.attention.value_length", 64)
                     .F32("qwen3.rope.freq_base", 150000)
                     .String("qwen3.rope.scaling.type", "yarn")
                     .F32("qwen3.rope.scaling.factor", 32)
                     .U32("qwen3.rope.scaling.original_context_length", 4096));
  const auto near = [&](int i, double expected) {
    EXPECT_NEAR(config.ropes[0].inv_freq[i] / expected, 1.0, 1e-6) << i;
  };
  near(0, 1.0);
  near(8, 5.081327e-2);
  near(9, 3.162075e-2);
  near(12, 7.015714e-3);
  near(16, 5.809475e-4);
  near(17, 2.279478e-4);
  near(18, 3.830881e-5);
  near(31, 3.023511e-7);
  EXPECT_NEAR(config.ropes[0].scale, 1.346574, 1e-6);
}

struct BadKey {
  std::string what;
  std::string architecture;
  std::function<void(GgufWriter*)> damage;
  absl::StatusCode code;
  std::string complaint;
};

void ExpectComplaints(const std::vector<BadKey>& cases) {
  for (const BadKey& bad : cases) {
    SCOPED_TRACE(bad.what);
    GgufWriter writer = TinyModel(bad.architecture);
    bad.damage(&writer);
    const absl::Status status = Parse(writer).status();
    EXPECT_EQ(status.code(), bad.code);
    EXPECT_THAT(std::string(status.message()), HasSubstr("some-model.gguf: "));
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad.complaint));
  }
}

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kUnimplemented = absl::StatusCode::kUnimplemented;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(ModelConfig, MissingKeysAreNamed) {
  std::vector<BadKey> cases;
  for (const std::string key :
       {"llama.block_count", "llama.context_length", "llama.embedding_length",
        "llama.feed_forward_length", "llama.attention.head_count",
        "llama.attention.layer_norm_rms_epsilon", "general.architecture"}) {
    cases.push_back(
        {key, "llama", [key](GgufWriter* w) { w->Remove(key); }, kInvalid, key + ": missing"});
  }
  cases.push_back({"no vocabulary", "llama",
                   [](GgufWriter* w) { w->Remove("tokenizer.ggml.tokens"); }, kInvalid,
                   "llama.vocab_size: missing"});
  cases.push_back({"no experts", "qwen3moe",
                   [](GgufWriter* w) { w->Remove("qwen3moe.expert_count"); }, kInvalid,
                   "qwen3moe.expert_count: none, expected 1 to 4096"});
  cases.push_back({"no used experts", "qwen3moe",
                   [](GgufWriter* w) { w->Remove("qwen3moe.expert_used_count"); }, kInvalid,
                   "qwen3moe.expert_used_count: missing"});
  ExpectComplaints(cases);
}

// Long because it is a table of cases.
TEST(ModelConfig, ImpossibleNumbersAreRefused) {
  const auto u32 = [](const std::string& key, uint32_t value) {
    return [key, value](GgufWriter* w) { w->U32(key, value); };
  };
  const auto f32 = [](const std::string& key, float value) {
    return [key, value](GgufWriter* w) { w->F32(key, value); };
  };
  const std::string eps = "llama.attention.layer_norm_rms_epsilon";
  ExpectComplaints({
      {"layers", "llama", u32("llama.block_count", 0), kInvalid,
       "llama.block_count: 0, expected 1 to 4096"},
      {"many layers", "llama", u32("llama.block_count", 4000000000), kInvalid, "block_count"},
      {"hidden", "llama", u32("llama.embedding_length", 0), kInvalid, "embedding_length: 0"},
      {"wide", "llama", u32("llama.embedding_length", 1u << 31), kInvalid, "embedding_length"},
      {"context", "llama", u32("llama.context_length", 0), kInvalid, "context_length: 0"},
      {"ffn", "llama", u32("llama.feed_forward_length", 1u << 30), kInvalid, "feed_forward"},
      {"heads", "llama", u32("llama.attention.head_count", 5), kInvalid, "head_count_kv: 2"},
      {"many heads", "llama", u32("llama.attention.head_count", 5000), kInvalid,
       "head_count: 5000"},
      {"head dim", "llama",
       [](GgufWriter* w) {
         w->U32("llama.attention.head_count", 6).U32("llama.attention.head_count_kv", 6);
       },
       kInvalid, "llama.attention.key_length: missing, expected this key: embedding_length 32"},
      {"kv heads", "llama", u32("llama.attention.head_count_kv", 3), kInvalid,
       "head_count_kv: 3 in layer 0, expected a divisor of the 4 heads"},
      {"zero key length", "llama", u32("llama.attention.key_length", 0), kInvalid, "key_length: 0"},
      {"odd rope", "llama", u32("llama.rope.dimension_count", 3), kInvalid,
       "rope.dimension_count: 3, expected an even number"},
      {"rope past head", "llama", u32("llama.rope.dimension_count", 10), kInvalid,
       "rope.dimension_count: 10, expected 1 to 8"},
      {"nan base", "llama", f32("llama.rope.freq_base", kNan), kInvalid, "rope.freq_base: nan"},
      {"zero base", "llama", f32("llama.rope.freq_base", 0), kInvalid, "rope.freq_base: 0"},
      {"negative factor", "llama", f32("llama.rope.scaling.factor", -2), kInvalid,
       "rope.scaling.factor: -2"},
      {"infinite factor", "llama",
       f32("llama.rope.scaling.factor", std::numeric_limits<float>::infinity()), kInvalid,
       "rope.scaling.factor: inf"},
      {"nan eps", "llama", f32(eps, kNan), kInvalid, "rms_epsilon: nan, expected a number above 0"},
      {"zero eps", "llama", f32(eps, 0), kInvalid, "rms_epsilon: 0"},
      {"negative eps", "llama", f32(eps, -1e-5f), kInvalid, "rms_epsilon: -1e-05"},
      {"eps of another type", "llama", u32(eps, 1), kInvalid, "found a u32, expected an f32"},
      {"short array", "llama", [](GgufWriter* w) { w->I32s("llama.feed_forward_length", {1}); },
       kInvalid, "an array of 1 values, expected one for each of 2 layers"},
      {"negative in array", "llama",
       [](GgufWriter* w) {
         w->I32s("llama.feed_forward_length", {1, -1});
       },
       kInvalid, "feed_forward_length: -1"},
      {"used", "qwen3moe", u32("qwen3moe.expert_used_count", 9), kInvalid,
       "expert_used_count: 9, expected 1 to 8"},
      {"experts", "qwen3moe", u32("qwen3moe.expert_count", 1u << 20), kInvalid, "expert_count"},
      {"dense layers", "qwen3moe", u32("qwen3moe.leading_dense_block_count", 3), kInvalid,
       "leading_dense_block_count: 3, expected 0 to 2"},
      {"groups", "qwen3moe", u32("qwen3moe.expert_group_count", 3), kInvalid,
       "expert_group_count: 3, expected a divisor of the 8 experts"},
      {"few experts in groups", "qwen3moe",
       [](GgufWriter* w) {
         w->U32("qwen3moe.expert_group_count", 8).U32("qwen3moe.expert_group_used_count", 1);
       },
       kInvalid, "expert_used_count: 2, expected at most 1, the experts of 1 groups"},
      {"pattern", "llama",
       [](GgufWriter* w) {
         w->Array("llama.attention.sliding_window_pattern", GgufValueType::kBool, 1,
                  std::string("\1", 1));
       },
       kInvalid, "an array of 1 values, expected one for each of 2 layers"},
      {"softcap", "gemma2", f32("gemma2.attn_logit_softcapping", -1), kInvalid,
       "attn_logit_softcapping: -1, expected 0 to 1e+06"},
      {"thin experts", "qwen3moe",
       [](GgufWriter* w) {
         w->Remove("qwen3moe.expert_feed_forward_length").U32("qwen3moe.feed_forward_length", 1);
       },
       kInvalid, "expert_feed_forward_length: 0"},
  });
}

TEST(ModelConfig, OtherDesignsAreUnimplementedByKey) {
  const auto set_u32 = [](const std::string& key, uint32_t value) {
    return [key, value](GgufWriter* w) { w->U32(key, value); };
  };
  ExpectComplaints({
      {"architecture", "mamba", [](GgufWriter*) {}, kUnimplemented,
       "general.architecture: \"mamba\" is not supported, expected one of llama, qwen2"},
      {"adapter", "llama", [](GgufWriter* w) { w->String("general.type", "adapter"); },
       kUnimplemented, "general.type: \"adapter\" is not supported, expected \"model\""},
      {"softcap", "llama", [](GgufWriter* w) { w->F32("llama.attn_logit_softcapping", 50); },
       kUnimplemented, "llama.attn_logit_softcapping: 50 is not supported, expected 0"},
      {"final softcap", "llama", [](GgufWriter* w) { w->F32("llama.final_logit_softcapping", 30); },
       kUnimplemented, "final_logit_softcapping"},
      {"mla", "llama", set_u32("llama.attention.kv_lora_rank", 512), kUnimplemented,
       "kv_lora_rank"},
      {"unknown key", "llama", set_u32("llama.attention.sea_state", 3), kUnimplemented,
       "llama.attention.sea_state: 3 is not supported, expected 0 or no such key"},
      {"multiplier of another family", "llama",
       [](GgufWriter* w) { w->F32("llama.logit_scale", 8); }, kUnimplemented,
       "llama.logit_scale: 8 is not supported, expected 1"},
      {"encoder", "llama", [](GgufWriter* w) { w->Bool("llama.attention.causal", false); },
       kUnimplemented, "attention.causal"},
      {"rope scaling", "llama", [](GgufWriter* w) { w->String("llama.rope.scaling.type", "ntk"); },
       kUnimplemented, "rope.scaling.type: \"ntk\" is not supported, expected none, linear"},
      {"router", "qwen3moe", set_u32("qwen3moe.expert_gating_func", 4), kUnimplemented,
       "expert_gating_func: 4 is not supported, expected 1 (softmax), 2 (sigmoid) or 3"},
      {"shared", "qwen3moe", set_u32("qwen3moe.expert_shared_feed_forward_length", 8),
       kUnimplemented, "expert_shared_feed_forward_length"},
      {"experts in a dense family", "qwen3", set_u32("qwen3.expert_count", 8), kUnimplemented,
       "expert_count: 8"},
      {"mtp", "qwen3", set_u32("qwen3.nextn_predict_layers", 1), kUnimplemented, "nextn"},
      {"sections", "qwen3",
       [](GgufWriter* w) {
         w->I32s("qwen3.rope.dimension_sections", {24, 20, 20, 0});
       },
       kUnimplemented, "dimension_sections"},
      {"value length", "qwen3",
       [](GgufWriter* w) {
         w->U32("qwen3.attention.key_length", 16).U32("qwen3.attention.value_length", 8);
       },
       kUnimplemented, "value_length: 8 is not supported, expected 16"},
      {"layer without attention", "llama",
       [](GgufWriter* w) {
         w->I32s("llama.attention.head_count_kv", {2, 0});
       },
       kUnimplemented, "head_count_kv: 0 in layer 1"},
  });
}

TEST(ModelConfig, NeutralValuesOfForeignKeysAreFine) {
  ParseOrDie(TinyModel("llama")
                 .F32("llama.attn_logit_softcapping", 0)
                 .U32("llama.expert_count", 0)
                 .U32("llama.nextn_predict_layers", 0)
                 .F32("llama.logit_scale", 1)
                 .Bool("llama.attention.causal", true)
                 .Bool("llama.use_parallel_residual", false));
  ParseOrDie(TinyModel("qwen3moe")
                 .U32("qwen3moe.expert_gating_func", 1)
                 .U32("qwen3moe.expert_group_count", 1)
                 .F32("qwen3moe.expert_weights_scale", 1));
}

TEST(AttentionDepth, IsWhereAttentionTakesAsMuchAsTheWeights) {
  // This is the configuration of SmolLM2-135M.
  ModelConfig config;
  config.hidden_size = 576;
  config.layers.assign(30, {.heads = 9, .kv_heads = 3, .head_dim = 64, .ffn_width = 1536});
  EXPECT_EQ(AttentionDepth(config), 3072);
  // Layers with windows cost the same at any depth.
  for (size_t i = 0; i < 15; ++i) config.layers[i].sliding_window = 512;
  EXPECT_EQ(AttentionDepth(config), 6144);
  for (LayerConfig& layer : config.layers) layer.sliding_window = 512;
  EXPECT_EQ(AttentionDepth(config), 0);
  // Only the experts that a row uses are counted.
  config.layers = {{.heads = 9, .kv_heads = 3, .head_dim = 64, .ffn = FfnKind::kMoe}};
  config.moe = {.experts = 64, .experts_used = 2, .expert_width = 704, .shared_width = 128};
  EXPECT_EQ(AttentionDepth(config), 3072);
}

}  // namespace
}  // namespace tidepool::engine
