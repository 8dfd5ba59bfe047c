#include "engine/scheduler/step_cost_model.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tidepool::engine {
namespace {

// A machine with decode steps of 30 ms, plus a fixed time per prompt row.
struct Machine {
  absl::Duration row;
  absl::Duration decode = absl::Milliseconds(30);

  StepCostModel::Step Compute(int64_t prompt_rows, int64_t decode_rows) const {
    return {.prompt_rows = prompt_rows,
            .decode_rows = decode_rows,
            .time = row * prompt_rows + (decode_rows > 0 ? decode : absl::ZeroDuration())};
  }
};

TEST(StepCostModelTest, NothingIsLimitedBeforeItIsMeasured) {
  StepCostModel pace;
  EXPECT_EQ(pace.MixedRows(512), 512);
  EXPECT_EQ(pace.prefill_rows_per_second(), 0);
  EXPECT_EQ(pace.rates().prompt_rows_per_second, 0);
  EXPECT_EQ(pace.rates().admissions_per_second, 0);
}

TEST(StepCostModelTest, MixedStepsTakeLittleMoreThanDecodes) {
  for (const int row_us : {1, 50, 300, 1000, 1500}) {
    const Machine machine = {.row = absl::Microseconds(row_us)};
    StepCostModel pace;
    for (int i = 0; i < 5; ++i) pace.AddStep(machine.Compute(0, 4));
    pace.AddStep(machine.Compute(512, 0));
    for (int i = 0; i < 20; ++i) {
      const int64_t rows = pace.MixedRows(512);
      const StepCostModel::Step step = machine.Compute(rows, 4);
      EXPECT_LE(step.time, machine.decode + StepCostModel::kMinExtra * 1.01) << row_us;
      // The result is also close to the maximum.
      EXPECT_GE(rows, std::min<int64_t>(512, 0.9 * (StepCostModel::kMinExtra / machine.row)));
      pace.AddStep(step);
    }
  }
}

TEST(StepCostModelTest, SlowDecodesBearAsMuchAgain) {
  const Machine machine = {.row = absl::Milliseconds(5), .decode = absl::Seconds(1)};
  StepCostModel pace;
  pace.AddStep(machine.Compute(0, 1));
  pace.AddStep(machine.Compute(100, 1));
  EXPECT_NEAR(static_cast<double>(pace.MixedRows(512)), 200, 2);
}

TEST(StepCostModelTest, SlowPromptsStillGetRows) {
  const Machine machine = {.row = absl::Seconds(1)};
  StepCostModel pace;
  pace.AddStep(machine.Compute(0, 1));
  pace.AddStep(machine.Compute(100, 1));
  EXPECT_EQ(pace.MixedRows(512), StepCostModel::kMinRows);
  EXPECT_EQ(pace.MixedRows(5), 5);
}

TEST(StepCostModelTest, SmallPromptsDoNotPredictLargeOnes) {
  const Machine machine = {.row = absl::Milliseconds(1)};
  StepCostModel pace;
  pace.AddStep(machine.Compute(40, 0));
  EXPECT_GT(pace.prefill_rows_per_second(), 0);
  EXPECT_EQ(pace.rates().prompt_rows_per_second, 0);
  pace.AddStep(machine.Compute(100, 0));
  EXPECT_NEAR(pace.rates().prompt_rows_per_second, 1000, 1);
}

// The model computes 100 rows a second, and the disk reads 2 GB/s at the same time.
TEST(StepCostModelTest, PromptsThatReadAreAsLargeAsTheirReadsAreLong) {
  StepCostModel pace;
  EXPECT_EQ(pace.MixedRowsOverReads(4'000'000'000, 2048), 2048) << "nothing is measured yet";
  pace.AddStep({.decode_rows = 4, .time = absl::Milliseconds(100)});
  // The reads took 2 s. The computation of the first rows waited 1 s for them.
  pace.AddStep({.prompt_rows = 100,
                .time = absl::Seconds(2),
                .read_bytes = 4'000'000'000,
                .read_time = absl::Seconds(2),
                .stall_time = absl::Seconds(1)});
  EXPECT_NEAR(static_cast<double>(pace.MixedRowsOverReads(4'000'000'000, 2048)), 200, 2);
  EXPECT_NEAR(static_cast<double>(pace.MixedRowsOverReads(2'000'000'000, 2048)), 100, 1);
  EXPECT_EQ(pace.MixedRowsOverReads(400'000'000'000, 2048), 2048);
  // With only one missing expert, the result is the same as without.
  EXPECT_EQ(pace.MixedRowsOverReads(2'600'000, 2048), pace.MixedRows(2048));
}

// A queue that is observed twice a second.
struct Queue {
  void Look(int64_t waiting, int64_t admitted) {
    admissions += admitted;
    at += absl::Milliseconds(500);
    pace.AddQueueLook({.at = at, .waiting = waiting, .admissions = admissions});
  }
  double rate() const { return pace.rates().admissions_per_second; }

  StepCostModel pace;
  absl::Duration at;
  int64_t admissions = 0;
};

TEST(StepCostModelTest, AdmissionsAreKnownAfterAFewAndForgottenWithTheirQueue) {
  Queue queue;
  queue.Look(3, 5);
  for (int i = 0; i < 7; ++i) queue.Look(3, 1);
  EXPECT_EQ(queue.rate(), 0);
  queue.Look(3, 1);
  EXPECT_NEAR(queue.rate(), 2, 0.01);
  for (int i = 0; i < 200; ++i) queue.Look(3, i % 2);
  EXPECT_NEAR(queue.rate(), 1, 0.1);
  queue.Look(0, 1);
  EXPECT_EQ(queue.rate(), 0);
}

TEST(StepCostModelTest, AnHourWithoutAQueueIsNotCountedAsWaiting) {
  Queue queue;
  queue.Look(0, 0);
  queue.at += absl::Hours(1);
  queue.Look(3, 5);
  for (int i = 0; i < 20; ++i) queue.Look(3, 1);
  EXPECT_NEAR(queue.rate(), 2, 0.01);
}

}  // namespace
}  // namespace tidepool::engine
