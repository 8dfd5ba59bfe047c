// The families with experts, with a quarter of their experts in memory: biases, shared experts,
// groups and multipliers included.
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/checkpoint/open_checkpoint.h"
#include "engine/evaluation/logits.h"
#include "engine/loading/tiered_model.h"
#include "engine/model/transformer.h"
#include "gtest/gtest.h"
#include "kernels/base/check.h"
#include "kernels/cpu/cpu_backend.h"

namespace tidepool::engine {
namespace {

class FamilyTiersTest : public testing::TestWithParam<const char*> {
 protected:
  // Logits of a few tokens. `experts`: null for all in memory.
  std::vector<float> Logits(const ExpertOptions* experts, int64_t chunk_rows) {
    auto file = OpenCheckpoint(std::string("tests/golden/families/") + GetParam() + ".gguf");
    CHECK_OK(file.status());
    const ModelConfig config = *ModelConfig::Parse(*file);
    auto store = *WeightStore::Create(*std::move(file), {.threads = 1});
    auto backend = *kernels::MakeCpuBackend({.threads = 2});
    TransformerOptions options;
    moe::TieredExperts* offloaded = nullptr;
    if (experts != nullptr) {
      auto tiered =
          MakeTieredExperts(config, store.get(), *experts, {.digest = std::string(32, '0')});
      CHECK_OK(tiered.status());
      CHECK(*tiered != nullptr) << "all experts are in memory";
      offloaded = tiered->get();
      options.experts = *std::move(tiered);
    }
    auto model = TransformerModel::Create(config, store.get(), backend.get(), std::move(options));
    CHECK_OK(model.status());
    if (offloaded != nullptr) offloaded->LoadResidents({});
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < 40; ++i) ids.push_back(i * 7 % 65);
    std::vector<float> all;
    CHECK_OK(ComputeLogits(model->get(), ids, {.chunk_rows = chunk_rows, .rows = LogitRows::kAll},
                           [&](int64_t, absl::Span<const float> logits) {
                             all.insert(all.end(), logits.begin(), logits.end());
                             return absl::OkStatus();
                           }));
    if (offloaded != nullptr) {
      EXPECT_GT(offloaded->Stats()->demand_bytes, 0);
    }
    return all;
  }
};

TEST_P(FamilyTiersTest, AQuarterOfTheExpertsGivesTheSameBits) {
  const ExpertOptions experts = {.memory = {.kind = ExpertMemoryKind::kShare, .share = 0.25},
                                 .cache_dir = testing::TempDir(),
                                 .staging = 1};
  const std::vector<float> expected = Logits(nullptr, 512);
  for (const int64_t chunk_rows : {512, 1}) {
    const std::vector<float> ours = Logits(&experts, chunk_rows);
    ASSERT_EQ(ours.size(), expected.size());
    EXPECT_EQ(std::memcmp(ours.data(), expected.data(), ours.size() * sizeof(float)), 0)
        << chunk_rows;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyTiersTest,
                         testing::Values("deepseek_v3", "ernie4_5_moe", "glm4moe", "gpt_oss",
                                         "granitemoeshared", "hunyuan_moe", "lfm2moe", "olmoe",
                                         "qwen35moe", "qwen3next"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace tidepool::engine
