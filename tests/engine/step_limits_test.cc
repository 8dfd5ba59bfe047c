#include "engine/step_limits.h"

#include <optional>
#include <vector>

#include "gtest/gtest.h"

namespace tidepool::engine {
namespace {

EngineOptions Options() {
  EngineOptions options;
  options.limits.rows = 512;
  options.prefill_chunk = 128;
  options.offload_prefill_chunk = 256;
  options.attention_depth = 1000;
  return options;
}

moe::OffloadStats Offload(int64_t slots) {
  moe::OffloadStats stats;
  stats.slots = slots;
  stats.experts = 100;
  stats.record_bytes = 1000;
  return stats;
}

TEST(StepLimitsTest, ChunksShrinkWithDepthWhileAllExpertsAreResident) {
  const std::vector<std::optional<moe::OffloadStats>> resident = {std::nullopt, Offload(100)};
  for (const auto& offload : resident) {
    const StepLimits limits = PickStepLimits(Options(), offload, StepCostModel());
    EXPECT_EQ(limits.prefill_chunk, 128);
    EXPECT_EQ(limits.attention_depth, 1000);
    EXPECT_EQ(limits.mixed_rows, 512);
  }
}

TEST(StepLimitsTest, MissingExpertsMakeChunksLongAtEveryDepth) {
  EngineOptions options = Options();
  EXPECT_EQ(PickStepLimits(options, Offload(99), StepCostModel()).prefill_chunk, 256);
  EXPECT_EQ(PickStepLimits(options, Offload(99), StepCostModel()).attention_depth, 0);
  options.offload_prefill_chunk = 0;  // as without offload
  EXPECT_EQ(PickStepLimits(options, Offload(99), StepCostModel()).prefill_chunk, 128);
}

TEST(StepLimitsTest, StepsThatReadMayHaveMoreRows) {
  StepCostModel cost;
  for (int i = 0; i < 20; ++i) {
    cost.AddStep({.decode_rows = 4, .time = absl::Milliseconds(20)});
    cost.AddStep({.prompt_rows = 128,
                  .decode_rows = 4,
                  .time = absl::Milliseconds(400),
                  .read_bytes = 10000,
                  .read_time = absl::Milliseconds(100)});
  }
  const int64_t resident = PickStepLimits(Options(), std::nullopt, cost).mixed_rows;
  const int64_t missing = PickStepLimits(Options(), Offload(10), cost).mixed_rows;
  EXPECT_LT(resident, 512);
  EXPECT_GT(missing, resident);
}

}  // namespace
}  // namespace tidepool::engine
