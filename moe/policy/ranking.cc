#include "moe/policy/ranking.h"

namespace tidepool::moe {

std::vector<ExpertRef> FillEvenly(const PoolShape& shape) {
  std::vector<ExpertRef> experts;
  experts.reserve(shape.slots);
  for (int32_t expert = 0; expert < shape.experts; ++expert) {
    for (int32_t layer = 0; layer < shape.layers; ++layer) {
      if (static_cast<int64_t>(experts.size()) == shape.slots) return experts;
      experts.push_back({layer, expert});
    }
  }
  return experts;
}

}  // namespace tidepool::moe
