// SlowHead: an attention head that averages over recent tokens, whatever they are. It makes the
// routing of a synthetic model persistent: neighbouring tokens choose similar experts.
#ifndef TIDEPOOL_TOOLS_SYNTHETIC_SLOW_HEAD_H_
#define TIDEPOOL_TOOLS_SYNTHETIC_SLOW_HEAD_H_

#include <cstdint>
#include <vector>

namespace tidepool::tools {

// Query and key are the same constant vector, so the score depends only on RoPE. The score of a
// token `distance` back is sqrt(head_dim) * the mean over the pairs of
// cos(distance * speed of the pair). The sum of several speeds decays; a single speed would be
// periodic.
struct SlowHead {
  std::vector<int64_t> pairs;  // RoPE pairs whose first element is `size`; all others are zero
  float size = 0;
  // w are the attention weights over a long context. squared_weights is the sum of w^2. correlation
  // is the correlation of the averages at neighbouring tokens, if the averaged values are
  // independent.
  double squared_weights = 0;
  double correlation = 0;
};

// Chooses the pairs with which the head comes closest to an average over 24 tokens.
SlowHead MakeSlowHead(int64_t head_dim, double rope_base);

}  // namespace tidepool::tools

#endif  // TIDEPOOL_TOOLS_SYNTHETIC_SLOW_HEAD_H_
