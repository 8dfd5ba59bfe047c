// FrequencyTable: counts how often an event happened, separately for each of several cases.
#ifndef TIDEPOOL_MOE_POLICY_FREQUENCY_TABLE_H_
#define TIDEPOOL_MOE_POLICY_FREQUENCY_TABLE_H_

#include <vector>

namespace tidepool::moe {

// Thread-compatible. Counts have a maximum, so that old samples are gradually forgotten.
class FrequencyTable {
 public:
  // `prior` is the assumed rate of a case without samples. It has the weight of 1.5 samples.
  FrequencyTable(int cases, float prior)
      : cells_(cases, {kPriorSamples * prior, kPriorSamples}), rates_(cases, prior) {}

  // Adds `samples` samples of a case. The event happened in `events` of them.
  void Add(int which, int samples, int events) {
    Cell& cell = cells_[which];
    cell.samples += static_cast<float>(samples);
    cell.events += static_cast<float>(events);
    rates_[which] = cell.events / cell.samples;
    if (cell.samples <= kMaxSamples) return;
    cell.events = kMaxSamples * rates_[which];
    cell.samples = kMaxSamples;
  }

  float rate(int which) const { return rates_[which]; }
  const std::vector<float>& rates() const { return rates_; }  // [cases]

 private:
  static constexpr float kPriorSamples = 1.5f;
  static constexpr float kMaxSamples = 5000;

  struct Cell {
    float events;
    float samples;
  };
  std::vector<Cell> cells_;
  std::vector<float> rates_;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_FREQUENCY_TABLE_H_
