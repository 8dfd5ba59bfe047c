// StepCostModel: what steps cost, measured as they go, and what follows from it: how fast prompts
// are computed, how fast those that wait get their place, and how many prompt rows a step may take
// that others wait for with their next token. (That such a step's rows be bounded by what its
// decodes can bear is from A. Agrawal et al., "Taming Throughput-Latency Tradeoff in LLM Inference
// with Sarathi-Serve", OSDI 2024.)
#ifndef TIDEPOOL_ENGINE_SCHEDULER_STEP_COST_MODEL_H_
#define TIDEPOOL_ENGINE_SCHEDULER_STEP_COST_MODEL_H_

#include <cstdint>

#include "absl/time/time.h"

namespace tidepool::engine {

// A ratio of two sums over the latest of many: older ones count less and less.
class FadingRatio {
 public:
  // `keep`: how much all that was added before still counts.
  void Add(double amount, double per, double keep = 0.9) {
    amount_ = amount_ * keep + amount;
    per_ = per_ * keep + per;
  }
  // 0: nothing was added yet.
  double value() const { return per_ > 0 ? amount_ / per_ : 0; }

 private:
  double amount_ = 0;
  double per_ = 0;
};

// What is known of a worker's speed; 0 each: not measured yet.
struct MeasuredRates {
  double prompt_rows_per_second = 0;  // of steps that compute many
  double admissions_per_second = 0;   // while others waited
};

// Engine thread only.
class StepCostModel {
 public:
  struct Step {
    int64_t prompt_rows = 0;
    int64_t decode_rows = 0;
    absl::Duration time;  // of its forward pass
    // Of experts that were not in memory.
    int64_t read_bytes = 0;
    absl::Duration read_time;   // while reads were under way
    absl::Duration stall_time;  // the part of it in which nothing was computed
  };
  void AddStep(const Step& step);
  struct QueueLook {
    absl::Duration at;  // on the monotonic clock
    int64_t waiting = 0;
    int64_t admissions = 0;  // all in all
  };
  // Admissions count between two looks at a queue that was empty at neither: the time before it
  // formed is nobody's wait. Once it is empty, how long one waits in the next is not known.
  void AddQueueLook(const QueueLook& look);

  // Of steps that mostly prefill; 0: none yet.
  double prefill_rows_per_second() const { return prefill_.value(); }
  MeasuredRates rates() const;

  // Prompt rows of a step that has decodes too: so many that it takes no more than twice the time
  // of its decodes, or kMinExtra more than that, whichever is longer; at least kMinRows, for
  // prompts must go on, and at most `most`. Before anything is measured: `most`.
  static constexpr absl::Duration kMinExtra = absl::Milliseconds(50);
  static constexpr int64_t kMinRows = 32;
  int64_t MixedRows(int64_t most) const;

  // The same where a step with many rows reads `missing_bytes` of experts, whatever their number
  // is: so many that computing them takes as long as those reads. Fewer would wait for the disk,
  // and the prompt's next step reads the same again; more keep decodes waiting without reading less
  // for each of them. Never less than MixedRows, at most `most`; before anything is measured:
  // `most`.
  int64_t MixedRowsOverReads(int64_t missing_bytes, int64_t most) const;

 private:
  // A step with fewer rows than this says little about what a large prompt takes.
  static constexpr int64_t kManyRows = 64;
  static constexpr int64_t kEnoughAdmissions = 8;

  FadingRatio prefill_;        // rows per second
  FadingRatio large_prefill_;  // the same, of steps of kManyRows
  FadingRatio decode_step_;    // seconds per step without prompt rows
  FadingRatio prompt_row_;     // seconds per prompt row, decodes aside
  FadingRatio computed_row_;   // seconds per row of steps that mostly prefill, stalls aside
  FadingRatio reads_;          // bytes per second
  FadingRatio admissions_;     // per second
  int64_t admissions_seen_ = 0;
  QueueLook last_look_;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_STEP_COST_MODEL_H_
