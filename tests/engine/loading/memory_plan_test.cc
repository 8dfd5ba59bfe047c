#include "engine/loading/memory_plan.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/loading/model_bundle.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/make_backend.h"
#include "tests/engine/loading/tiered_fixture.h"
#include "tests/kernels/protected_backend.h"

namespace tidepool::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kMib = 1 << 20;
constexpr int64_t kGib = 1 << 30;
constexpr ExpertSizes kSizes = {.experts = 100,
                                .record_bytes = 2 * kMib,
                                .total_bytes = 200 * kMib,
                                .dense_bytes = 30 * kMib,
                                .top_k = 4,
                                .staging = 8};

TEST(PlanExpertSlotsTest, AGpuAlsoNeedsAWorkspace) {
  MemoryLimits limits = {.available_bytes = 320 * kMib,
                         .reserve_bytes = 10 * kMib,
                         .kv_bytes = 50 * kMib,
                         .workspace_bytes = 30 * kMib,
                         .level = MemoryLevel::kDevice};
  EXPECT_EQ(*PlanExpertSlots({}, limits, kSizes), 0);  // 200 + 30 + 50 + 30 + 10: just fits
  limits.workspace_bytes += kMib;
  EXPECT_EQ(*PlanExpertSlots({}, limits, kSizes), 199 / 2 - 8);
  limits.available_bytes = 100 * kMib;
  const absl::Status status = PlanExpertSlots({}, limits, kSizes).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("100.0 MiB of free memory of the GPU"),
                    HasSubstr("31.0 MiB workspace"), HasSubstr("set --expert-memory")));
}

TEST(PlanExpertSlotsTest, AGpuKeepsTheLargerReserve) {
  const auto reserve = [](int64_t available, MemoryLevel level) {
    return ReserveBytes({.available_bytes = available, .level = level});
  };
  EXPECT_EQ(reserve(4 * kGib, MemoryLevel::kDevice), 3 * kGib / 2);
  EXPECT_EQ(reserve(40 * kGib, MemoryLevel::kDevice), 4 * kGib);
  EXPECT_EQ(reserve(4 * kGib, MemoryLevel::kHost), kGib);
  EXPECT_EQ(reserve(40 * kGib, MemoryLevel::kBelowDevice), 3 * kGib / 2);
  EXPECT_EQ(
      ReserveBytes({.available_bytes = kGib, .reserve_bytes = 7, .level = MemoryLevel::kDevice}),
      7);
}

// Below a GPU, all experts need slots in the host's memory, because a GPU cannot read other memory.
TEST(PlanExpertSlotsTest, BelowAGpuAllExpertsHaveSlotsIfTheyFit) {
  MemoryLimits limits = {.level = MemoryLevel::kBelowDevice};
  EXPECT_EQ(*PlanExpertSlots({}, limits, kSizes), 100);
  limits.available_bytes = kGib;
  EXPECT_EQ(*PlanExpertSlots({}, limits, kSizes), 100);
  limits.available_bytes = 240 * kMib;
  limits.reserve_bytes = 10 * kMib;
  EXPECT_EQ(*PlanExpertSlots({}, limits, kSizes), (240 - 10 - 30) / 2 - 8);
  limits.available_bytes = 50 * kMib;
  const absl::Status status = PlanExpertSlots({}, limits, kSizes).status();
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("lower --reserve-memory, or set --host-expert-memory"),
                    Not(HasSubstr("--kv-memory"))));
  const ExpertMemory bytes = {.kind = ExpertMemoryKind::kBytes, .bytes = kMib};
  EXPECT_THAT(std::string(PlanExpertSlots(bytes, limits, kSizes).status().message()),
              HasSubstr("--host-expert-memory is 1.0 MiB"));
}

class MemoryPlanTest : public TieredModelTest {
 protected:
  // `free_bytes` is the device's memory.
  LoadOptions OnDevice(size_t free_bytes) const {
    LoadOptions options = {.threads = 1, .device = kernels::Device::kCuda};
    options.experts.limits.reserve_bytes = 0;
    options.experts.limits.kv_bytes = kMib;
    options.make_backend = [free_bytes](const kernels::BackendOptions& backend)
        -> absl::StatusOr<std::unique_ptr<kernels::KernelBackend>> {
      if (backend.device == kernels::Device::kCpu) return kernels::MakeBackend(backend);
      return kernels::MakeProtectedBackend({.memory_bytes = free_bytes});
    };
    return options;
  }
};

TEST_F(MemoryPlanTest, AGpuWithRoomForAllExpertsHasNoTiers) {
  const auto plan = PlanModel(model_, OnDevice(kGib));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(plan->on_device);
  EXPECT_FALSE(plan->offloads());
  EXPECT_EQ(plan->host_slots, 0);
  EXPECT_EQ(plan->kv_bytes, kMib);
  EXPECT_GT(plan->workspace_bytes, 0);
  EXPECT_EQ(plan->sizes.experts, 48);
  const auto bundle = LoadModel(model_, OnDevice(kGib));
  ASSERT_TRUE(bundle.ok()) << bundle.status();
  EXPECT_EQ((*bundle)->model->offload_control(), nullptr);
  EXPECT_EQ((*bundle)->host_backend, nullptr);
}

// The plan leaves room for what the engine allocates after the load.
TEST_F(MemoryPlanTest, AGpuWithLessRoomGetsTheSlotsThatFit) {
  // With this number of sequences, the workspace is the same with and without tiers.
  LoadOptions options = OnDevice(kGib);
  options.max_sequences = kOffloadPrefillRows;
  const MemoryPlan roomy = *PlanModel(model_, options);
  const int64_t others = roomy.workspace_bytes + kMib + roomy.sizes.dense_bytes;
  options = OnDevice(others + (20 + 8) * roomy.sizes.record_bytes);
  options.max_sequences = kOffloadPrefillRows;
  std::optional<MemoryPlan> told;
  options.planned = [&](const MemoryPlan& plan) { told = plan; };
  const auto bundle = LoadModel(model_, options);
  ASSERT_TRUE(bundle.ok()) << bundle.status();
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->slots, 20);
  EXPECT_EQ(told->host_slots, 48);
  EXPECT_NE((*bundle)->host_backend, nullptr);
  EXPECT_EQ((*bundle)->model->offload_stats()->slots, 20);
  EXPECT_EQ((*bundle)->model->offload_stats()->host->slots, 48);
}

TEST_F(MemoryPlanTest, PassesThatReadExpertsHaveALargerWorkspace) {
  LoadOptions options = OnDevice(kGib);
  const MemoryPlan resident = *PlanModel(model_, options);
  options.experts.memory = {.kind = ExpertMemoryKind::kShare, .share = 0.5};
  EXPECT_GT(PlanModel(model_, options)->workspace_bytes, resident.workspace_bytes);
}

TEST_F(MemoryPlanTest, TheHostsMemoryIsAFlagOfAGpu) {
  LoadOptions options = OnDevice(kGib);
  options.experts.memory = {.kind = ExpertMemoryKind::kShare, .share = 0.5};
  options.experts.host_memory = {.kind = ExpertMemoryKind::kShare, .share = 0.75};
  const auto plan = PlanModel(model_, options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->slots, 24 - 8);
  EXPECT_EQ(plan->host_slots, 36 - 8);
  options.experts.host_memory = {.kind = ExpertMemoryKind::kShare, .share = 0.01};
  const MemoryPlan raised = *PlanModel(model_, options);
  EXPECT_EQ(raised.host_slots, 4);
  const auto notes = RaisedShareNotes(options.experts, raised);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_THAT(notes[0], HasSubstr("--host-expert-memory 1% is"));
  options.device = kernels::Device::kCpu;
  const absl::Status status = PlanModel(model_, options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--host-expert-memory"));
}

// By default, the KV gets a quarter of what the other weights leave, at most 1 GiB.
TEST_F(MemoryPlanTest, TheDefaultKvIsAPartOfTheDevicesMemory) {
  LoadOptions options = OnDevice(400 * kMib);
  options.experts.limits.kv_bytes = -1;
  const MemoryPlan plan = *PlanModel(model_, options);
  EXPECT_EQ(plan.kv_bytes, (400 * kMib - plan.sizes.dense_bytes) / 4);
  EXPECT_EQ(plan.available_bytes, 400 * kMib);
}

TEST_F(MemoryPlanTest, OnTheCpuThereIsOneLevel) {
  const LoadOptions options = {.threads = 1, .experts = Share(0.5)};
  const MemoryPlan plan = *PlanModel(model_, options);
  EXPECT_FALSE(plan.on_device);
  EXPECT_EQ(plan.slots, 24 - 8);
  EXPECT_EQ(plan.host_slots, 0);
  EXPECT_EQ(plan.workspace_bytes, 0);
}

}  // namespace
}  // namespace tidepool::engine
