// StepCostModel: measures the cost of steps. From this it estimates how fast prompts are computed,
// how fast waiting requests are admitted, and how many prompt rows may be in a step with decodes.
// (The idea to limit prompt rows for the sake of decodes is from A. Agrawal et al., "Taming
// Throughput-Latency Tradeoff in LLM Inference with Sarathi-Serve", OSDI 2024.)
#ifndef TIDEPOOL_ENGINE_SCHEDULER_STEP_COST_MODEL_H_
#define TIDEPOOL_ENGINE_SCHEDULER_STEP_COST_MODEL_H_

#include <cstdint>

#include "absl/time/time.h"

namespace tidepool::engine {

// The ratio of two sums. Older values have exponentially less weight.
class FadingRatio {
 public:
  // Adds a value. The weight of all earlier values shrinks by the factor `keep`.
  void Add(double amount, double per, double keep = 0.9) {
    amount_ = amount_ * keep + amount;
    per_ = per_ * keep + per;
  }
  // Returns 0 if nothing was added yet.
  double value() const { return per_ > 0 ? amount_ / per_ : 0; }

 private:
  double amount_ = 0;
  double per_ = 0;
};

// A worker's measured speed. 0: not measured yet.
struct MeasuredRates {
  double prompt_rows_per_second = 0;  // measured in steps with many prompt rows
  double admissions_per_second = 0;   // measured while other requests waited
};

// Engine thread only.
class StepCostModel {
 public:
  struct Step {
    int64_t prompt_rows = 0;
    int64_t decode_rows = 0;
    absl::Duration time;  // duration of the forward pass
    // Bytes of experts that had to be read.
    int64_t read_bytes = 0;
    absl::Duration read_time;   // time in which reads were in flight
    absl::Duration stall_time;  // part of read_time in which nothing was computed
  };
  void AddStep(const Step& step);
  struct QueueLook {
    absl::Duration at;  // time of the look, on the monotonic clock
    int64_t waiting = 0;
    int64_t admissions = 0;  // total number of admissions so far
  };
  // Counts the admissions since the previous look, if the queue was not empty at both looks.
  // Otherwise the queue was empty in between, so the rate does not show how fast a queue moves. If
  // the queue is empty now, the rate for the next queue is unknown.
  void AddQueueLook(const QueueLook& look);

  // Measured in steps that consist mostly of prefill. 0: not measured yet.
  double prefill_rows_per_second() const { return prefill_.value(); }
  MeasuredRates rates() const;

  // Maximum prompt rows of a step that also has decodes. With this number of rows, the step takes
  // at most twice the time of its decodes, or at most kMinExtra more than this time, whichever is
  // longer. The result is at least kMinRows, so that prompts make progress, and at most `most`.
  // Returns `most` if nothing is measured yet.
  static constexpr absl::Duration kMinExtra = absl::Milliseconds(50);
  static constexpr int64_t kMinRows = 32;
  int64_t MixedRows(int64_t most) const;

  // Like MixedRows, for a model with experts on disk. A step reads `missing_bytes` of experts,
  // whatever the number of its rows. With the returned number of rows, computing takes as long as
  // these reads. With fewer rows, the step would wait for the disk, and the next step of the prompt
  // would read the same experts again. With more rows, decodes would wait longer, while the reads
  // per row hardly decrease. The result is at least MixedRows and at most `most`. Returns `most` if
  // nothing is measured yet.
  int64_t MixedRowsOverReads(int64_t missing_bytes, int64_t most) const;

 private:
  // Steps with fewer rows are not used to measure the speed of large prompts.
  static constexpr int64_t kManyRows = 64;
  static constexpr int64_t kEnoughAdmissions = 8;

  FadingRatio prefill_;        // rows per second
  FadingRatio large_prefill_;  // rows per second, in steps of at least kManyRows
  FadingRatio decode_step_;    // seconds per step, in steps without prompt rows
  FadingRatio prompt_row_;     // seconds per prompt row, in steps without decodes
  FadingRatio computed_row_;   // seconds per row in steps of mostly prefill, without stalls
  FadingRatio reads_;          // bytes read per second
  FadingRatio admissions_;     // admissions per second
  int64_t admissions_seen_ = 0;
  QueueLook last_look_;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_STEP_COST_MODEL_H_
