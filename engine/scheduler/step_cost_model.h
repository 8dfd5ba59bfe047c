// StepCostModel: measures the cost of steps. It derives how fast prompts are computed, how fast
// waiting requests are admitted, and how many prompt rows a step with decodes may have. (Limiting
// the rows of a step by what its decodes tolerate comes from A. Agrawal et al., "Taming
// Throughput-Latency Tradeoff in LLM Inference with Sarathi-Serve", OSDI 2024.)
#ifndef TIDEPOOL_ENGINE_SCHEDULER_STEP_COST_MODEL_H_
#define TIDEPOOL_ENGINE_SCHEDULER_STEP_COST_MODEL_H_

#include <cstdint>

#include "absl/time/time.h"

namespace tidepool::engine {

// A ratio of two sums in which older values have exponentially less weight.
class FadingRatio {
 public:
  // `keep`: the factor by which the weight of all earlier values shrinks.
  void Add(double amount, double per, double keep = 0.9) {
    amount_ = amount_ * keep + amount;
    per_ = per_ * keep + per;
  }
  // 0 if nothing was added yet.
  double value() const { return per_ > 0 ? amount_ / per_ : 0; }

 private:
  double amount_ = 0;
  double per_ = 0;
};

// A worker's measured speed. 0: not measured yet.
struct MeasuredRates {
  double prompt_rows_per_second = 0;  // from steps with many prompt rows
  double admissions_per_second = 0;   // while others waited
};

// Engine thread only.
class StepCostModel {
 public:
  struct Step {
    int64_t prompt_rows = 0;
    int64_t decode_rows = 0;
    absl::Duration time;  // duration of the forward pass
    // Bytes of experts that were not in memory.
    int64_t read_bytes = 0;
    absl::Duration read_time;   // time with reads in flight
    absl::Duration stall_time;  // part of read_time in which nothing was computed
  };
  void AddStep(const Step& step);
  struct QueueLook {
    absl::Duration at;  // time on the monotonic clock
    int64_t waiting = 0;
    int64_t admissions = 0;  // total so far
  };
  // Admissions count if the queue was not empty at this look and at the previous one, because
  // otherwise nobody waited. When the queue is empty, the rate of the next queue is unknown.
  void AddQueueLook(const QueueLook& look);

  // From steps that mostly prefill. 0: none yet.
  double prefill_rows_per_second() const { return prefill_.value(); }
  MeasuredRates rates() const;

  // Maximum prompt rows of a step that also has decodes. With these rows, the step takes at most
  // twice the time of its decodes, or kMinExtra more than they take, whichever is longer. The
  // result is at least kMinRows, so that prompts make progress, and at most `most`. Returns `most`
  // before anything is measured.
  static constexpr absl::Duration kMinExtra = absl::Milliseconds(50);
  static constexpr int64_t kMinRows = 32;
  int64_t MixedRows(int64_t most) const;

  // Same as MixedRows, for a model with experts on disk: a step reads `missing_bytes` of experts,
  // whatever the number of its rows. With the returned rows, computing takes as long as these
  // reads. With fewer rows, the step would wait for the disk, and the prompt's next step would read
  // the same experts again. With more, decodes wait longer without any saving in reads per row. The
  // result is at least MixedRows and at most `most`. Returns `most` before anything is measured.
  int64_t MixedRowsOverReads(int64_t missing_bytes, int64_t most) const;

 private:
  // Steps with fewer rows do not measure the speed of large prompts.
  static constexpr int64_t kManyRows = 64;
  static constexpr int64_t kEnoughAdmissions = 8;

  FadingRatio prefill_;        // rows per second
  FadingRatio large_prefill_;  // same, from steps of at least kManyRows
  FadingRatio decode_step_;    // seconds per step without prompt rows
  FadingRatio prompt_row_;     // seconds per prompt row, without decodes
  FadingRatio computed_row_;   // seconds per row of steps that mostly prefill, without stalls
  FadingRatio reads_;          // bytes per second
  FadingRatio admissions_;     // per second
  int64_t admissions_seen_ = 0;
  QueueLook last_look_;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_STEP_COST_MODEL_H_
