// Makes routing traces from seeds, for tests of policies.
#ifndef TIDEPOOL_TESTS_MOE_REPLAY_MADE_TRACES_H_
#define TIDEPOOL_TESTS_MOE_REPLAY_MADE_TRACES_H_

#include <cstdint>

#include "moe/trace/trace.h"

namespace tidepool::moe {

// How the routing of a sequence changes from one forward to the next.
struct MadeTraceOptions {
  int layers = 4;
  int experts = 16;
  int top_k = 2;
  int forwards = 100;
  int tokens = 1;         // tokens of a decode forward
  double drift = 0.2;     // share of a token's experts that are drawn again
  double skew = 0;        // 0: all experts are equally likely; 1: in proportion to 1 / (1 + rank)
  int prefill_every = 0;  // number of forwards from one prefill to the next; 0: no prefills
  int prefill_tokens = 0;
  // > 0: routing repeats after this number of forwards, and other options are ignored
  int period = 0;
  uint32_t seed = 1;
};

Trace MakeTrace(const MadeTraceOptions& options);

}  // namespace tidepool::moe

#endif  // TIDEPOOL_TESTS_MOE_REPLAY_MADE_TRACES_H_
