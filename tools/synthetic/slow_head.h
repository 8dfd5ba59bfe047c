// An attention head that averages over recent tokens, whatever they are: what gives a synthetic
// model's routing its persistence.
#ifndef TIDEPOOL_TOOLS_SYNTHETIC_SLOW_HEAD_H_
#define TIDEPOOL_TOOLS_SYNTHETIC_SLOW_HEAD_H_

#include <cstdint>
#include <vector>

namespace tidepool::tools {

// Query and key are one constant vector, so that the rotation (RoPE) alone decides: the score of a
// token `distance` back is sqrt(head_dim) * mean over the pairs of cos(distance * speed of the
// pair). Several speeds together fall off once, and do not come back as a single one would.
struct SlowHead {
  std::vector<int64_t> pairs;  // of the rotation, whose first element is `size`; all else is zero
  float size = 0;
  // Of the attention's weights w over a long context: the sum of w^2, and what an average of
  // independent tokens keeps from one token to the next, as a correlation.
  double squared_weights = 0;
  double correlation = 0;
};

// The pairs whose average comes nearest to one over 24 tokens.
SlowHead MakeSlowHead(int64_t head_dim, double rope_base);

}  // namespace tidepool::tools

#endif  // TIDEPOOL_TOOLS_SYNTHETIC_SLOW_HEAD_H_
