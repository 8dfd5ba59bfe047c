// The simulation of a device's tier makes the same decisions, and takes the same time, as
// DeviceExperts on a backend in virtual time.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/base/check.h"
#include "moe/device/device_experts.h"
#include "moe/replay/replay.h"
#include "moe/replay/tier_simulation.h"
#include "tests/moe/device/device_rig.h"
#include "tests/moe/replay/made_traces.h"
#include "tests/moe/replay/timed_backend.h"

namespace tidepool::moe {
namespace {

absl::Duration Us(double us) { return absl::Nanoseconds(1000 * us); }

// Runs a trace through DeviceExperts, like the ExpertScheduler.
class TimedRun {
 public:
  TimedRun(const RandomExperts& model, const TierOptions& options, int64_t slots, PolicyKind policy)
      : costs_(options.costs),
        backend_(Us(costs_.copy_latency_us +
                    1e6 * static_cast<double>(costs_.expert_bytes) / costs_.copy_bytes_per_s)) {
    const std::vector<int> layer_numbers = {0, 1, 2};
    auto host = TieredExperts::Create(model.records(),
                                      std::make_unique<PuppetReader>(&model.bytes(), /*seed=*/1),
                                      {.top_k = kTopK,
                                       .slots = kAll,
                                       .policy = {.kind = policy},
                                       .prefetch = Prefetch::kOff,
                                       .layer_numbers = layer_numbers,
                                       .pin = &backend_});
    CHECK_OK(host.status());
    auto experts = DeviceExperts::Create(&backend_, *std::move(host),
                                         {.top_k = kTopK,
                                          .slots = slots,
                                          .staging = options.staging,
                                          .policy = {.kind = policy},
                                          .prefetch = Prefetch::kOff,
                                          .layer_numbers = layer_numbers,
                                          .clock = &backend_});
    CHECK_OK(experts.status());
    experts_ = *std::move(experts);
    CHECK_OK(experts_->LoadResidents([](double) {}));
  }

  // Returns the virtual time in seconds until everything has ended.
  double Run(const Trace& trace) {
    const absl::Duration begin = backend_.Monotonic();
    for (size_t i = 0; i < trace.entries.size(); ++i) {
      const TraceEntry& entry = trace.entries[i];
      RunLayer(entry.routing(trace.header.top_k));
      if (entry.layer + 1 == trace.header.layers) {
        backend_.RunOp(Us(costs_.device_step_us));
        CHECK_OK(backend_.Sync());
      }
    }
    const absl::Duration end = std::max(backend_.Monotonic(), backend_.copies_end());
    return absl::ToDoubleSeconds(end - begin);
  }

  const DeviceExperts& experts() const { return *experts_; }

 private:
  void RunLayer(LayerRouting routing) {
    backend_.RunOp(Us(costs_.device_layer_us));
    CHECK_OK(backend_.Sync());
    std::vector<int32_t> experts(routing.ids.begin(), routing.ids.end());
    std::sort(experts.begin(), experts.end());
    experts.erase(std::unique(experts.begin(), experts.end()), experts.end());
    routing.host_lane = routing.tokens <= kHostLaneRows ? HostLane::kOn : HostLane::kOff;
    experts_->Request(routing, experts);
    while (true) {
      const auto wave = experts_->NextReady(Patience::kUntilOne);
      CHECK_OK(wave.status());
      if (wave->empty()) break;
      Compute(*wave, routing.ids);
      for (const ReadyExpert& ready : *wave) experts_->Release(ready.expert);
    }
  }

  void Compute(const std::vector<ReadyExpert>& wave, absl::Span<const int32_t> ids) {
    double device_us = 0;
    double cpu_us = 0;
    HostWork work;
    for (const ReadyExpert& ready : wave) {
      const int64_t rows = std::count(ids.begin(), ids.end(), ready.expert);
      const auto count = static_cast<double>(rows);
      if (ready.place == Place::kBackend) {
        if (device_us == 0) device_us = costs_.device_call_us;
        device_us += costs_.device_expert_us + count * costs_.device_expert_row_us;
        continue;
      }
      if (cpu_us == 0) cpu_us = costs_.cpu_call_us;
      cpu_us += costs_.cpu_expert_us + count * costs_.cpu_expert_row_us;
      work.bytes += costs_.expert_bytes;
      work.row_bytes += costs_.expert_bytes * rows;
    }
    if (device_us > 0) backend_.RunOp(Us(device_us));
    if (cpu_us == 0) return;
    work.time = Us(cpu_us);
    backend_.Advance(work.time);
    experts_->NoteHostWork(work);
  }

  const TierCosts costs_;
  kernels::TimedBackend backend_;
  std::unique_ptr<DeviceExperts> experts_;
};

// Times above 0, in whole nanoseconds.
TierCosts RandomCosts(std::mt19937* random) {
  const auto us = [random](int most) {
    return 0.001 * static_cast<double>(1 + (*random)() % (1000 * most));
  };
  return {.expert_bytes = RandomExperts::kRecordBytes,
          .device_step_us = us(300),
          .device_layer_us = us(200),
          .device_call_us = us(50),
          .device_expert_us = us(20),
          .device_expert_row_us = us(3),
          .copy_latency_us = us(200),
          .copy_bytes_per_s = 8.192e9,
          .cpu_call_us = us(50),
          .cpu_expert_us = us(100),
          .cpu_expert_row_us = us(10)};
}

TEST(TierFidelityTest, DecidesAndTakesAsLongAsDeviceExperts) {
  const RandomExperts model;
  int64_t copied = 0;
  int64_t computed_on_cpu = 0;
  int64_t copied_for_later = 0;
  for (uint32_t seed = 1; seed <= 24; ++seed) {
    std::mt19937 random(seed);
    Trace trace = MakeTrace({.layers = kLayers,
                             .experts = kExperts,
                             .top_k = kTopK,
                             .forwards = 60,
                             .tokens = 1 + static_cast<int>(random() % 3),
                             .drift = 0.3,
                             .skew = 0.5,
                             .prefill_every = seed % 3 == 0 ? 7 : 0,
                             .prefill_tokens = 70,
                             .seed = seed});
    trace.header.expert_bytes.assign(kLayers, RandomExperts::kRecordBytes);
    const TierOptions options = {.costs = RandomCosts(&random),
                                 .staging = 1 + static_cast<int>(random() % 8)};
    const auto slots = static_cast<int64_t>(kTopK + random() % (kAll - kTopK + 1));
    for (const PolicyKind kind :
         {PolicyKind::kAdaptive, PolicyKind::kTide, PolicyKind::kLru, PolicyKind::kStatic}) {
      SCOPED_TRACE(absl::StrCat(PolicyName(kind), ", seed ", seed, ", ", slots, " slots"));
      auto placement = MakePlacement(trace, slots, {std::string(PolicyName(kind)), {}});
      ASSERT_TRUE(placement.ok()) << placement.status();
      const TierResult simulated = SimulateTier(trace, options, placement->get());
      TimedRun run(model, options, slots, kind);
      const double seconds = run.Run(trace);
      const OffloadStats stats = *run.experts().Stats();
      EXPECT_EQ(simulated.counters, run.experts().placement().Total());
      EXPECT_EQ(simulated.copied, stats.host->copied);
      EXPECT_EQ(simulated.computed_on_cpu, stats.host->computed_on_cpu);
      EXPECT_EQ(simulated.copied_for_later, stats.host->copied_for_later);
      EXPECT_NEAR(simulated.seconds, seconds, 1e-7 * seconds);
      copied += simulated.copied;
      computed_on_cpu += simulated.computed_on_cpu;
      copied_for_later += simulated.copied_for_later;
    }
  }
  // The comparison is not empty.
  EXPECT_GT(copied, 1000);
  EXPECT_GT(computed_on_cpu, 1000);
  EXPECT_GT(copied_for_later, 300);
}

}  // namespace
}  // namespace tidepool::moe
