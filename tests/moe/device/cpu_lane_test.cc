#include "moe/cpu_lane.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/moe/device/device_rig.h"

namespace tidepool::moe {
namespace {

// Gives out experts in random order and groups. Each one is given to the device or to the CPU at
// random, if the request allows it.
class TwoPlaces final : public ExpertSource {
 public:
  TwoPlaces(const RandomExperts* model, kernels::KernelBackend* device, int seed)
      : model_(*model), random_(seed), memory_(model->bytes().size(), device->memory()) {
    device->CopyIn(model->bytes(), memory_.data());
    for (const auto& layer : model->records().layers) {
      auto& weights = on_device_.emplace_back();
      for (const ExpertRecord& record : layer) {
        weights.push_back(record.layout.At(memory_.data() + record.offset));
      }
    }
  }

  void Request(const LayerRouting& routing, absl::Span<const int32_t> experts) override {
    host_lane = routing.host_lane;
    layer_ = routing.layer;
    left_.assign(experts.begin(), experts.end());
    std::shuffle(left_.begin(), left_.end(), random_);
  }
  absl::StatusOr<std::vector<ReadyExpert>> NextReady(Patience) override {
    if (host_lane == HostLane::kOn) {
      EXPECT_EQ(lent_, 0);
    }
    std::vector<ReadyExpert> wave;
    for (uint64_t count = 1 + random_() % 5; count > 0 && !left_.empty(); --count) {
      const int32_t expert = left_.back();
      left_.pop_back();
      const bool on_host = host_lane == HostLane::kOn && random_() % 2 == 0;
      wave.push_back(
          {.expert = expert,
           .place = on_host ? Place::kHost : Place::kBackend,
           .weights = on_host ? &model_.layers()[layer_][expert] : &on_device_[layer_][expert]});
      on_cpu += on_host ? 1 : 0;
    }
    lent_ += static_cast<int>(wave.size());
    return wave;
  }
  void Release(int32_t) override { --lent_; }
  void Postpone(int32_t) override { FAIL(); }
  void NoteHostWork(const HostWork& noted) override {
    work.bytes += noted.bytes;
    work.row_bytes += noted.row_bytes;
    work.time += noted.time;
  }

  HostLane host_lane = HostLane::kOff;
  int on_cpu = 0;
  HostWork work;

 private:
  const RandomExperts& model_;
  std::mt19937 random_;
  const kernels::Buffer memory_;
  std::vector<std::vector<kernels::FfnWeights>> on_device_;
  int layer_ = 0;
  int lent_ = 0;
  std::vector<int32_t> left_;
};

class CpuLaneTest : public testing::Test {
 protected:
  // Runs a layer with experts from `source`, and expects the bits of a run on the CPU.
  void Run(const Tokens& tokens, TwoPlaces* source, const SchedulerMemory& memory = {},
           bool with_host_x = true) {
    ExpertScheduler scheduler(rig_.device.get(), source, rig_.cpu.get(), memory, &rig_.clock);
    Routing routing = tokens.InLayer(0, 1);
    if (!with_host_x) routing.host_x = {};
    const auto out = rig_.RunOn(tokens, routing, rig_.device.get(), &scheduler);
    ASSERT_TRUE(out.ok()) << out.status();
    EXPECT_EQ(*out, rig_.Expected(tokens, 1));
  }

  const RandomExperts model_;
  DeviceRig rig_{model_, {}};
};

TEST_F(CpuLaneTest, BothLanesHaveTheBitsOfTheCpu) {
  std::mt19937 random(4);
  for (int seed = 0; seed < 30; ++seed) {
    TwoPlaces source(&model_, rig_.device.get(), seed);
    const Tokens tokens(1 + static_cast<int64_t>(random() % kHostLaneRows), &random);
    // All rows are in one call, or calls have 16 rows.
    Run(tokens, &source, {.call_bytes = seed % 2 == 0 ? int64_t{1} << 22 : 1});
    EXPECT_EQ(source.host_lane, HostLane::kOn);
  }
}

TEST_F(CpuLaneTest, ReportsBytesRowsAndTime) {
  std::mt19937 random(4);
  Tokens tokens(1, &random);
  TwoPlaces source(&model_, rig_.device.get(), 1);
  for (int i = 0; i < 20; ++i) Run(tokens, &source);
  const int64_t bytes = 3 * kHidden * kWidth / 32 * 34;
  ASSERT_GT(source.on_cpu, 0);
  EXPECT_EQ(source.work.bytes, source.on_cpu * bytes);
  EXPECT_EQ(source.work.row_bytes, source.work.bytes);
  EXPECT_GT(source.work.time, absl::ZeroDuration());
}

TEST_F(CpuLaneTest, IsOffWithoutXOnTheHostAndWithManyRows) {
  std::mt19937 random(4);
  TwoPlaces source(&model_, rig_.device.get(), 1);
  Run(Tokens(3, &random), &source, {}, /*with_host_x=*/false);
  EXPECT_EQ(source.host_lane, HostLane::kOff);
  Run(Tokens(kHostLaneRows + 1, &random), &source);
  EXPECT_EQ(source.host_lane, HostLane::kOff);
  // The outputs do not fit into the workspace.
  Run(Tokens(40, &random), &source, {.whole_bytes = 0});
  EXPECT_EQ(source.host_lane, HostLane::kOff);
  Run(Tokens(kHostLaneRows, &random), &source);
  EXPECT_EQ(source.host_lane, HostLane::kOn);
}

}  // namespace
}  // namespace tidepool::moe
