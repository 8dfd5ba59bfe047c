// The bytes of the KV of published models. The test computes them from the values of config.json,
// and compares them with KvCostOf for the metadata of the GGUF file. `inspect` prints this cost.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/checkpoint/gguf.h"
#include "engine/kv/kv_cache.h"
#include "engine/kv/kv_layout.h"
#include "engine/model/model_config.h"
#include "engine/model/transformer.h"
#include "kernels/base/check.h"
#include "tests/engine/checkpoint/gguf_writer.h"

namespace tidepool::engine {
namespace {

constexpr int64_t kGib = int64_t{1} << 30;
constexpr int64_t kContext = 131072;
constexpr int64_t kStepRows = 512;

// Values of a published config.json, and the metadata that llama.cpp's converter makes of them.
struct PublishedModel {
  std::string name;
  int64_t full_layers = 0;
  int64_t window_layers = 0;
  int64_t window = 0;
  int64_t token_bytes = 0;  // of one layer's KV in F16
  GgufWriter metadata;
};

GgufWriter Metadata(const std::string& architecture, uint32_t layers, uint32_t heads,
                    uint32_t kv_heads, uint32_t head_dim) {
  GgufWriter writer = TinyModel(architecture);
  writer.U32(architecture + ".block_count", layers)
      .U32(architecture + ".context_length", kContext)
      .U32(architecture + ".attention.head_count", heads)
      .U32(architecture + ".attention.head_count_kv", kv_heads)
      .U32(architecture + ".attention.key_length", head_dim)
      .U32(architecture + ".attention.value_length", head_dim);
  return writer;
}

// 34 layers, num_key_value_heads 4, head_dim 256, sliding_window 1024, every sixth layer is full.
PublishedModel Gemma3Of4B() {
  return {
      .name = "Gemma 3 4B",
      .full_layers = 5,
      .window_layers = 29,
      .window = 1024,
      .token_bytes = int64_t{2} * 4 * 256 * 2,
      .metadata = Metadata("gemma3", 34, 8, 4, 256).U32("gemma3.attention.sliding_window", 1024)};
}

// 26 layers, one KV head, sliding_window 512.
PublishedModel Gemma3Of1B() {
  return {
      .name = "Gemma 3 1B",
      .full_layers = 4,
      .window_layers = 22,
      .window = 512,
      .token_bytes = int64_t{2} * 256 * 2,
      .metadata = Metadata("gemma3", 26, 4, 1, 256).U32("gemma3.attention.sliding_window", 512)};
}

// 24 layers, num_key_value_heads 8, head_dim 64, sliding_window 128, every second layer is full.
PublishedModel GptOss20B() {
  return {.name = "gpt-oss-20b",
          .full_layers = 12,
          .window_layers = 12,
          .window = 128,
          .token_bytes = int64_t{2} * 8 * 64 * 2,
          .metadata = Metadata("gpt-oss", 24, 64, 8, 64)
                          .U32("gpt-oss.attention.sliding_window", 128)
                          .U32("gpt-oss.expert_count", 32)
                          .U32("gpt-oss.expert_used_count", 4)
                          .U32("gpt-oss.expert_feed_forward_length", 64)};
}

// 61 layers, kv_lora_rank 512, qk_rope_head_dim 64: the values are the first 512 of the keys.
PublishedModel DeepSeekV3() {
  return {.name = "DeepSeek-V3",
          .full_layers = 61,
          .token_bytes = int64_t{512 + 64} * 2,
          .metadata = Metadata("deepseek2", 61, 128, 1, 576)
                          .U32("deepseek2.attention.value_length", 512)
                          .U32("deepseek2.attention.key_length_mla", 192)
                          .U32("deepseek2.attention.value_length_mla", 128)
                          .U32("deepseek2.attention.kv_lora_rank", 512)
                          .U32("deepseek2.attention.q_lora_rank", 1536)
                          .U32("deepseek2.rope.dimension_count", 64)};
}

std::vector<KvSpec> SpecsOf(PublishedModel model) {
  auto file = GgufFile::Open(WriteTempFile("kv_cost.gguf", model.metadata.Build()));
  CHECK_OK(file.status());
  const auto config = ModelConfig::Parse(*file);
  CHECK_OK(config.status());
  return KvSpecsOf(*config, kernels::DType::kF16);
}

void ExpectWithinFivePercent(int64_t bytes, int64_t ideal) {
  EXPECT_GE(bytes, ideal);
  EXPECT_LE(static_cast<double>(bytes), 1.05 * static_cast<double>(ideal));
}

TEST(KvCostTest, PublishedModelsCostTheirWindowsAndLatents) {
  for (const PublishedModel& model : {Gemma3Of4B(), Gemma3Of1B(), GptOss20B(), DeepSeekV3()}) {
    SCOPED_TRACE(model.name);
    const std::vector<KvSpec> specs = SpecsOf(model);
    ASSERT_EQ(specs.size(), model.full_layers + model.window_layers);
    const KvCost cost = KvCostOf(specs);
    ExpectWithinFivePercent(cost.bytes_per_token, model.full_layers * model.token_bytes);
    ExpectWithinFivePercent(cost.window_bytes,
                            model.window_layers * model.window * model.token_bytes);
  }
  EXPECT_EQ(KvCostOf(SpecsOf(Gemma3Of4B())).bytes_per_token, 20480);
  EXPECT_EQ(KvCostOf(SpecsOf(GptOss20B())).bytes_per_token, 24576);
  EXPECT_EQ(KvCostOf(SpecsOf(DeepSeekV3())).bytes_per_token, 70272);
}

// Includes the blocks for the rows of a step, and those that are only partly filled.
TEST(KvCostTest, AGibibyteHoldsNearlyTheIdealNumberOfTokens) {
  for (const PublishedModel& model : {Gemma3Of4B(), Gemma3Of1B(), GptOss20B(), DeepSeekV3()}) {
    SCOPED_TRACE(model.name);
    const int64_t windows = model.window_layers * (model.window + kStepRows) * model.token_bytes;
    const int64_t ideal = (kGib - windows) / (model.full_layers * model.token_bytes);
    const int64_t tokens = KvCapacityTokens(SpecsOf(model), kGib, kStepRows);
    EXPECT_LE(tokens, ideal);
    EXPECT_GE(static_cast<double>(tokens), 0.95 * static_cast<double>(ideal));
  }
}

// The full layers need 512 MiB, and the windows fit, too. If all 26 layers were full, they would
// need 3.25 GiB.
TEST(KvCostTest, AGibibyteHoldsALongContextOfAWindowModel) {
  const std::vector<KvSpec> specs = SpecsOf(Gemma3Of1B());
  EXPECT_GE(KvCapacityTokens(specs, kGib, kStepRows), kContext);
  EXPECT_LT(KvCapacityTokens(SpecsOf(GptOss20B()), kGib, kStepRows), kContext);
  const auto cache = KvCache::Create(specs, {.memory_bytes = kGib});
  ASSERT_TRUE(cache.ok()) << cache.status();
  EXPECT_LE((*cache)->BlocksFor(kContext, kStepRows), (*cache)->blocks_total());
  const std::vector<int32_t> tokens(kContext, 7);
  KvLease lease = (*cache)->NewLease("");
  for (int64_t slots = kStepRows; slots <= kContext; slots += kStepRows) {
    auto space = lease.Reserve(slots);
    ASSERT_TRUE(space.has_value()) << slots;
    space->Keep();
    lease.Commit(absl::MakeSpan(tokens).first(slots));
  }
  const auto held = static_cast<int64_t>(lease.blocks_held() * (*cache)->block_bytes());
  const KvCost cost = KvCostOf(specs);
  ExpectWithinFivePercent(held, cost.bytes_per_token * kContext + cost.window_bytes);
}

}  // namespace
}  // namespace tidepool::engine
