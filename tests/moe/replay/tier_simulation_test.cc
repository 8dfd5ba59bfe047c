// Tests the simulation of a device's tier: times of small cases against values computed by hand,
// and bounds that no schedule can break.
#include "moe/replay/tier_simulation.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "kernels/base/check.h"
#include "moe/replay/replay.h"
#include "moe/replay/tier_costs.h"
#include "tests/moe/replay/made_traces.h"

namespace tidepool::moe {
namespace {

constexpr double kUs = 1e-6;

// A copy takes 200 us, and an expert with one row 9 us on the device and 55 us on the CPU.
constexpr TierCosts kCosts = {.expert_bytes = 1'000'000,
                              .device_step_us = 100,
                              .device_layer_us = 10,
                              .device_call_us = 5,
                              .device_expert_us = 3,
                              .device_expert_row_us = 1,
                              .copy_latency_us = 100,
                              .copy_bytes_per_s = 1e10,
                              .cpu_call_us = 20,
                              .cpu_expert_us = 30,
                              .cpu_expert_row_us = 5};

TierCosts FastCopies() {
  TierCosts costs = kCosts;
  costs.copy_latency_us = 10;
  costs.copy_bytes_per_s = 1e11;
  return costs;
}

// One layer of eight experts.
Trace OneLayer(int top_k, const std::vector<std::vector<int32_t>>& forwards,
               Phase phase = Phase::kDecode) {
  Trace trace = MakeTrace({.layers = 1, .experts = 8, .top_k = top_k, .forwards = 0});
  for (const std::vector<int32_t>& ids : forwards) {
    trace.entries.push_back({.step = static_cast<int64_t>(trace.entries.size()),
                             .layer = 0,
                             .ids = ids,
                             .phases = {phase}});
  }
  return trace;
}

TierResult Simulate(const Trace& trace, int64_t slots, const std::string& policy,
                    const TierOptions& options) {
  auto placement = MakePlacement(trace, slots, {policy, {}});
  CHECK_OK(placement.status());
  return SimulateTier(trace, options, placement->get());
}

TEST(TierSimulationTest, AllHitsOnlyUseTheDevice) {
  const TierResult result = Simulate(OneLayer(2, {{0, 1}, {1, 2}}), 8, "static", {.costs = kCosts});
  // The layer, one call of two experts with one row each, and the end of the forward pass.
  constexpr double kForward = (10 + (5 + 2 * 3 + 2 * 1) + 100) * kUs;
  EXPECT_NEAR(result.seconds, 2 * kForward, 1e-12);
  EXPECT_NEAR(result.device_seconds, 2 * kForward, 1e-12);
  EXPECT_EQ(result.copy_seconds, 0);
  EXPECT_EQ(result.cpu_seconds, 0);
  EXPECT_EQ(result.forwards, 2);
  EXPECT_EQ(result.counters.hits, 4);
  EXPECT_NEAR(result.tokens_per_s(), 1 / kForward, 1e-6);
}

TEST(TierSimulationTest, MissesAreComputedOnTheCpuIfCopiesAreSlow) {
  TierCosts costs = kCosts;
  costs.copy_latency_us = 1e5;
  // Expert 0 has the only slot.
  const TierResult result =
      Simulate(OneLayer(2, {{2, 3}, {2, 3}, {2, 3}}), 1, "static", {.costs = costs});
  constexpr double kCpu = (20 + 2 * 30 + 2 * 5) * kUs;
  EXPECT_NEAR(result.seconds, 3 * (10 * kUs + kCpu + 100 * kUs), 1e-12);
  EXPECT_NEAR(result.cpu_seconds, 3 * kCpu, 1e-12);
  EXPECT_EQ(result.computed_on_cpu, 6);
  EXPECT_EQ(result.copied, 0);
  EXPECT_EQ(result.copied_for_later, 0);
  EXPECT_EQ(result.copy_seconds, 0);
}

TEST(TierSimulationTest, TheCpuWorksBesideTheDevice) {
  TierCosts costs = kCosts;
  costs.copy_latency_us = 1e5;
  costs.device_expert_us = 300;
  // The device computes expert 0 in 306 us, and meanwhile the CPU computes expert 3 in 55 us.
  const TierResult slow_device = Simulate(OneLayer(2, {{0, 3}}), 1, "static", {.costs = costs});
  EXPECT_NEAR(slow_device.seconds, (10 + 306 + 100) * kUs, 1e-12);
  costs.device_expert_us = 3;
  const TierResult slow_cpu = Simulate(OneLayer(2, {{0, 3}}), 1, "static", {.costs = costs});
  EXPECT_NEAR(slow_cpu.seconds, (10 + 55 + 100) * kUs, 1e-12);
}

TEST(TierSimulationTest, TheDeviceWaitsForACopyThatIsLate) {
  // lru gives expert 2 the slot. The CPU computes it until 65 us, and meanwhile it is copied from
  // 10 to 210 us. The second forward pass begins at 165 us, and needs it at 175 us.
  const TierResult result = Simulate(OneLayer(1, {{2}, {2}}), 1, "lru", {.costs = kCosts});
  EXPECT_NEAR(result.seconds, (210 + 9 + 100) * kUs, 1e-12);
  EXPECT_NEAR(result.copy_wait_seconds, 35 * kUs, 1e-12);
  EXPECT_NEAR(result.copy_seconds, 200 * kUs, 1e-12);
  EXPECT_EQ(result.computed_on_cpu, 1);
  EXPECT_EQ(result.copied_for_later, 1);
  EXPECT_EQ(result.counters.hits, 1);
}

TEST(TierSimulationTest, ACopyThatIsInTimeCostsNothing) {
  TierCosts costs = kCosts;
  costs.device_step_us = 200;
  const TierResult result = Simulate(OneLayer(1, {{2}, {2}}), 1, "lru", {.costs = costs});
  EXPECT_NEAR(result.seconds, (10 + 55 + 200 + 10 + 9 + 200) * kUs, 1e-12);
  EXPECT_EQ(result.copy_wait_seconds, 0);
}

// Returns a forward of 65 rows. The last row needs expert 3, and the others need expert 2. With
// this number of rows, the CPU computes nothing.
Trace Prompt() {
  std::vector<int32_t> ids(64, 2);
  ids.push_back(3);
  return OneLayer(1, {ids}, Phase::kPrefill);
}

TEST(TierSimulationTest, CopiesRunInOrder) {
  const TierResult result = Simulate(Prompt(), 1, "static", {.costs = kCosts});
  // The copies end at 210 and 410 us. Then one call computes both experts.
  EXPECT_NEAR(result.seconds, (410 + (5 + 2 * 3 + 65) + 100) * kUs, 1e-12);
  EXPECT_NEAR(result.copy_wait_seconds, 400 * kUs, 1e-12);
  EXPECT_EQ(result.copied, 2);
  EXPECT_EQ(result.computed_on_cpu, 0);
  EXPECT_EQ(result.decode_rows, 0);
  EXPECT_EQ(result.tokens_per_s(), 0);
}

TEST(TierSimulationTest, ACopyWaitsForAFreeBuffer) {
  const TierResult result = Simulate(Prompt(), 1, "static", {.costs = kCosts, .staging = 1});
  // Expert 2 is copied until 210 us and computed until 282 us. Then expert 3 gets its buffer.
  EXPECT_NEAR(result.seconds, (282 + 200 + (5 + 3 + 1) + 100) * kUs, 1e-12);
}

TEST(TierSimulationTest, ACopyRunsBesideOpsThatUseOtherBuffers) {
  const TierResult result =
      Simulate(OneLayer(2, {{0, 2}, {0, 2}}), 1, "static", {.costs = FastCopies()});
  // The first miss measures the CPU, and takes until 65 us. So the second one is copied. The second
  // forward pass begins at 165 us, and its routing is known at 175 us. The copy takes 20 us.
  // Meanwhile, the hit runs until 184 us.
  EXPECT_NEAR(result.seconds, (175 + 20 + 9 + 100) * kUs, 1e-12);
  EXPECT_EQ(result.copied, 1);
  EXPECT_EQ(result.computed_on_cpu, 1);
}

TEST(TierSimulationTest, PromptsDoNotCountAsDecoding) {
  Trace trace = OneLayer(1, {{0, 0, 0}, {0, 0}});
  trace.entries[0].phases = {Phase::kPrefill};
  trace.entries[1].phases = {Phase::kPrefill, Phase::kDecode};
  const TierResult result = Simulate(trace, 8, "static", {.costs = kCosts});
  EXPECT_EQ(result.decode_rows, 1);
  EXPECT_NEAR(result.decode_seconds, (10 + 5 + 3 + 2 + 100) * kUs, 1e-12);
  EXPECT_NEAR(result.seconds, result.decode_seconds + (10 + 5 + 3 + 3 + 100) * kUs, 1e-12);
}

TierCosts RandomCosts(std::mt19937* random) {
  const auto us = [random](int most) { return static_cast<double>((*random)() % most); };
  return {.expert_bytes = 1'000'000,
          .device_step_us = us(300),
          .device_layer_us = us(200),
          .device_call_us = us(50),
          .device_expert_us = us(20),
          .device_expert_row_us = us(3),
          .copy_latency_us = us(50),
          .copy_bytes_per_s = 1e9 * (1 + us(80)),
          .cpu_call_us = us(50),
          .cpu_expert_us = us(200),
          .cpu_expert_row_us = us(30)};
}

// No resource works longer than the whole time, and at any time at least one resource works.
TEST(TierSimulationTest, TimesAreBetweenTheLongestAndTheSumOfTheResources) {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    std::mt19937 random(seed);
    const Trace trace = MakeTrace({.layers = 3,
                                   .experts = 20,
                                   .top_k = 3,
                                   .forwards = 40,
                                   .tokens = 1 + static_cast<int>(random() % 4),
                                   .drift = 0.3,
                                   .skew = 0.5,
                                   .prefill_every = random() % 2 == 0 ? 9 : 0,
                                   .prefill_tokens = 80,
                                   .seed = seed});
    const TierOptions options = {.costs = RandomCosts(&random),
                                 .staging = 1 + static_cast<int>(random() % 9)};
    const auto slots = static_cast<int64_t>(3 + random() % 58);
    for (const char* policy : {"adaptive", "tide", "lru", "static", "belady"}) {
      SCOPED_TRACE(absl::StrCat(policy, ", seed ", seed));
      const TierResult result = Simulate(trace, slots, policy, options);
      const double longest =
          std::max({result.device_seconds, result.copy_seconds, result.cpu_seconds});
      EXPECT_GE(result.seconds, longest * (1 - 1e-9));
      EXPECT_LE(result.seconds,
                (result.device_seconds + result.copy_seconds + result.cpu_seconds) * (1 + 1e-9));
      EXPECT_EQ(result.copied + result.computed_on_cpu, result.counters.misses());
      EXPECT_LE(result.copied_for_later, result.computed_on_cpu);
      const auto copies = static_cast<double>(result.copied + result.copied_for_later);
      EXPECT_NEAR(
          result.copy_seconds,
          copies * (options.costs.copy_latency_us * kUs + 1e6 / options.costs.copy_bytes_per_s),
          1e-9);
      EXPECT_LE(result.decode_seconds, result.seconds * (1 + 1e-9));
    }
  }
}

Trace Drifting() {
  return MakeTrace({.layers = 6,
                    .experts = 32,
                    .top_k = 4,
                    .forwards = 300,
                    .drift = 0.2,
                    .skew = 0.5,
                    .seed = 7});
}

TEST(TierSimulationTest, MoreSlotsAreNotSlower) {
  const Trace trace = Drifting();
  double before = 0;
  std::vector<double> speeds;
  for (const int64_t slots : {19, 48, 96, 144, 192}) {
    const double speed = Simulate(trace, slots, "lru", {.costs = kCosts}).tokens_per_s();
    EXPECT_GT(speed, 0.98 * before) << slots << " slots";
    before = speed;
    speeds.push_back(speed);
  }
  EXPECT_GT(speeds.back(), 1.3 * speeds.front());
}

TEST(TierSimulationTest, MissesGoToTheFasterLane) {
  const Trace trace = Drifting();
  TierCosts costs = FastCopies();
  costs.cpu_expert_us = 1000;
  const TierResult copying = Simulate(trace, 48, "lru", {.costs = costs});
  EXPECT_GT(copying.copied, 20 * copying.computed_on_cpu);
  costs = kCosts;
  costs.cpu_call_us = costs.cpu_expert_us = costs.cpu_expert_row_us = 1;
  const TierResult computing = Simulate(trace, 48, "lru", {.costs = costs});
  EXPECT_GT(computing.computed_on_cpu, 20 * computing.copied);
  EXPECT_GT(computing.copied_for_later, 0);
}

TEST(TierSimulationTest, AnEmptyTraceTakesNoTime) {
  const TierResult result = Simulate(OneLayer(1, {}), 4, "lru", {.costs = kCosts});
  EXPECT_EQ(result.forwards, 0);
  EXPECT_EQ(result.seconds, 0);
  EXPECT_EQ(result.tokens_per_s(), 0);
}

// The example in tier_costs.h.
constexpr char kExample[] = R"({"about": "one H200",
  "expert_bytes": 2654208, "device_step_us": 120, "device_layer_us": 180, "device_call_us": 24,
  "device_expert_us": 5.3, "device_expert_row_us": 0, "copy_latency_us": 10,
  "copy_bytes_per_s": 50e9, "cpu_call_us": 20, "cpu_expert_us": 40, "cpu_expert_row_us": 10})";

TEST(TierCostsTest, ReadsEveryField) {
  const auto costs = ParseTierCosts("c.json", kExample);
  ASSERT_TRUE(costs.ok()) << costs.status();
  EXPECT_EQ(costs->expert_bytes, 2654208);
  EXPECT_EQ(costs->device_step_us, 120);
  EXPECT_EQ(costs->device_layer_us, 180);
  EXPECT_EQ(costs->device_call_us, 24);
  EXPECT_EQ(costs->device_expert_us, 5.3);
  EXPECT_EQ(costs->device_expert_row_us, 0);
  EXPECT_EQ(costs->copy_latency_us, 10);
  EXPECT_EQ(costs->copy_bytes_per_s, 50e9);
  EXPECT_EQ(costs->cpu_call_us, 20);
  EXPECT_EQ(costs->cpu_expert_us, 40);
  EXPECT_EQ(costs->cpu_expert_row_us, 10);
}

std::string ErrorOf(const std::string& from, const std::string& to) {
  const std::string text = absl::StrReplaceAll(kExample, {{from, to}});
  CHECK(text != kExample);
  const auto costs = ParseTierCosts("c.json", text);
  EXPECT_EQ(costs.status().code(), absl::StatusCode::kInvalidArgument);
  const std::string message(costs.status().message());
  return message.substr(0, message.find("; moe/"));
}

TEST(TierCostsTest, ErrorsNameTheFileAndTheField) {
  EXPECT_EQ(ErrorOf("{", "["), "c.json: the file is not a JSON object");
  EXPECT_EQ(ErrorOf("cpu_call_us", "cpu_cal_us"), "c.json: \"cpu_call_us\" is missing");
  EXPECT_EQ(ErrorOf("{", "{\"gpu\": 1, "), "c.json: unknown field \"gpu\"");
  EXPECT_EQ(ErrorOf("5.3", "-1"), "c.json: \"device_expert_us\" must be a number from 0 to 1e+09");
  EXPECT_EQ(ErrorOf("5.3", "\"5\""),
            "c.json: \"device_expert_us\" must be a number from 0 to 1e+09");
  EXPECT_EQ(ErrorOf("50e9", "0"), "c.json: \"copy_bytes_per_s\" must be a number from 1 to 1e+15");
  EXPECT_EQ(ErrorOf("2654208", "0"), "c.json: \"expert_bytes\" must be a number from 1 to 1e+12");
}

}  // namespace
}  // namespace tidepool::moe
