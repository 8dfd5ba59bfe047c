// Families with experts, of which a quarter is in memory. The models have biases, shared experts,
// groups and multipliers.
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/checkpoint/open_checkpoint.h"
#include "engine/evaluation/logits.h"
#include "engine/loading/memory_plan.h"
#include "engine/loading/tiered_model.h"
#include "engine/model/transformer.h"
#include "gtest/gtest.h"
#include "kernels/base/check.h"
#include "tests/engine/model/test_backend.h"

namespace tidepool::engine {
namespace {

class FamilyTiersTest : public testing::TestWithParam<const char*> {
 protected:
  static Checkpoint Open() {
    auto file = OpenCheckpoint(std::string("tests/golden/families/") + GetParam() + ".gguf");
    CHECK_OK(file.status());
    return *std::move(file);
  }

  static MemoryPlan PlanOf(const ModelConfig& config, const ExpertOptions& experts,
                           kernels::KernelBackend* backend) {
    const auto shapes =
        *WeightStore::Create(Open(), {.threads = 1, .contents = WeightContents::kShapesOnly});
    auto plan = PlanMemory(config, shapes.get(), {.experts = &experts, .backend = backend});
    CHECK_OK(plan.status());
    CHECK(plan->offloads()) << "all experts are in memory";
    return *std::move(plan);
  }

  // Returns the logits of a few tokens. If `experts` is null, all experts are in memory, on the
  // CPU.
  static std::vector<float> Logits(const ExpertOptions* experts, int64_t chunk_rows) {
    Checkpoint file = Open();
    const ModelConfig config = *ModelConfig::Parse(file);
    const auto backend = MakeTestBackend(
        {.backend = experts == nullptr ? TestBackend::kCpu : TestBackend::kFromEnvironment,
         .threads = 2});
    const auto host = MakeTestBackend({.backend = TestBackend::kCpu, .threads = 2});
    auto store = *WeightStore::Create(std::move(file), {.threads = 1, .backend = backend.get()});
    ExpertTiers tiers;
    if (experts != nullptr) {
      const MemoryPlan plan = PlanOf(config, *experts, backend.get());
      auto made = MakeExpertTiers(
          config, store.get(), *experts,
          {.plan = &plan, .digest = std::string(32, '0'), .backend = backend.get()});
      CHECK_OK(made.status());
      tiers = *std::move(made);
    }
    auto model = TransformerModel::Create(
        config, store.get(), backend.get(),
        {.experts = std::move(tiers.source),
         .host_backend = backend->memory()->on_host() ? nullptr : host.get()});
    CHECK_OK(model.status());
    if (experts != nullptr) {
      CHECK_OK(tiers.load_residents({}));
    }
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < 40; ++i) ids.push_back(i * 7 % 65);
    std::vector<float> all;
    CHECK_OK(ComputeLogits(model->get(), ids, {.chunk_rows = chunk_rows, .rows = LogitRows::kAll},
                           [&](int64_t, absl::Span<const float> logits) {
                             all.insert(all.end(), logits.begin(), logits.end());
                             return absl::OkStatus();
                           }));
    if (experts != nullptr) {
      EXPECT_GT((*model)->offload_stats()->demand_bytes, 0);
    }
    return all;
  }
};

// On a device, its memory has a quarter of the experts, and the host's memory half of them.
TEST_P(FamilyTiersTest, AQuarterOfTheExpertsGivesTheSameBits) {
  const ExpertOptions experts = {.memory = {.kind = ExpertMemoryKind::kShare, .share = 0.25},
                                 .host_memory = {.kind = ExpertMemoryKind::kShare, .share = 0.5},
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
