#include "moe/policy/hold_horizon.h"

#include <limits>

#include "moe/policy/vec4.h"

namespace tidepool::moe {

void HoldHorizon::Go(const ChanceCurves& curves, int count, float price) {
  for (int e = 0; e < count; e += kLanes) {
    Vec4 unused = Vec4{} + 1.0f;  // chance of no use so far
    Vec4 waited = Vec4{};         // forwards after the next, on average
    Vec4 best = Vec4{} - std::numeric_limits<float>::infinity();
    Vec4 chance = Vec4{};
    Vec4 forwards = Vec4{};
    for (int forward = 0; forward < ChanceCurves::kForwards; ++forward) {
      // The next one is waited for in any case.
      if (forward > 0) waited += unused;
      unused *= 1.0f - Load4(curves.At(forward) + e);
      const Vec4 gain = 1.0f - unused - price * waited;
      const Int4 better = gain > best;
      best = better ? gain : best;
      chance = better ? 1.0f - unused : chance;
      forwards = better ? waited : forwards;
      // A use that were certain from here on would gain no more than this.
      if (!AnyOf4(1.0f - price * waited > best)) break;
    }
    Store4(chance, &chance_[e]);
    Store4(forwards, &forwards_[e]);
  }
}

}  // namespace tidepool::moe
