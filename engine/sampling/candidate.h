// Candidate: a token that may be sampled.
#ifndef TIDEPOOL_ENGINE_SAMPLING_CANDIDATE_H_
#define TIDEPOOL_ENGINE_SAMPLING_CANDIDATE_H_

#include <cstdint>

namespace tidepool::engine {

struct Candidate {
  float value = 0;  // a logit; later a weight: exp((logit - best) / temperature)
  int32_t id = 0;
};

// The order of candidates: the higher value is first. If values are equal, the lower id is first.
inline bool Better(const Candidate& a, const Candidate& b) {
  return a.value != b.value ? a.value > b.value : a.id < b.id;
}

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SAMPLING_CANDIDATE_H_
