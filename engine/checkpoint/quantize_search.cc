#include "engine/checkpoint/quantize_search.h"

#include <algorithm>
#include <cmath>

namespace tidepool::engine::quantize {
namespace {

// After the search, rounding and fitting are repeated this number of times. The error never
// increases, and more rounds would change almost nothing.
constexpr int kRefinements = 3;

// Candidates map the extreme element of a block to numbers that are up to kReach below or above the
// end of the range of codes. If the number is above, this element is clamped, which makes the other
// elements more precise.
constexpr float kReach = 1.0f;
constexpr float kReachStep = 0.1f;

// Scales at or below this are refused, because inverses and squares would overflow float32. A
// float16 scale is never this small.
constexpr float kTiny = 0x1p-60f;

// Sums over a block, with the codes q of one candidate.
struct ScaleSums {
  float xq = 0;
  float qq = 0;
  // How much the best scale for these codes reduces the sum of squares of x.
  float gain() const { return qq > 0 ? xq * xq / qq : 0; }
  float scale() const { return qq > 0 ? xq / qq : 0; }
};

ScaleSums SumsAt(const float* x, int count, float inverse, CodeRange range) {
  Lanes xq = {};
  Lanes qq = {};
  for (int i = 0; i < count; i += kLanes) {
    const Lanes value = Load(x + i);
    const Lanes code = Clamp(Round(value * inverse), range.low, range.high);
    xq += value * code;
    qq += code * code;
  }
  return {Sum(xq), Sum(qq)};
}

struct AffineSums {
  float x = 0;
  float q = 0;
  float xq = 0;
  float qq = 0;
};

// Computes the sums for the codes (x - fit.minimum) * inverse.
AffineSums SumsAt(const float* x, int count, float minimum, float inverse, float high) {
  Lanes sum_x = {};
  Lanes sum_q = {};
  Lanes xq = {};
  Lanes qq = {};
  for (int i = 0; i < count; i += kLanes) {
    const Lanes value = Load(x + i);
    const Lanes code = Clamp(Round((value - minimum) * inverse), 0, high);
    sum_x += value;
    sum_q += code;
    xq += value * code;
    qq += code * code;
  }
  return {Sum(sum_x), Sum(sum_q), Sum(xq), Sum(qq)};
}

struct Candidate {
  AffineFit fit;
  float gain = 0;  // how much the sum of squares of x is reduced
  bool valid = false;
};

// Returns the least-squares fit for given codes.
Candidate Solve(const AffineSums& sums, int count, Minimum rule) {
  const float n = static_cast<float>(count);
  const float determinant = n * sums.qq - sums.q * sums.q;
  if (!(determinant > 0)) return {};
  Candidate result;
  result.fit.step = (n * sums.xq - sums.x * sums.q) / determinant;
  result.fit.minimum = (sums.qq * sums.x - sums.q * sums.xq) / determinant;
  if (rule == Minimum::kNotPositive && result.fit.minimum > 0) {
    result.fit = {sums.xq / sums.qq, 0};
  }
  result.gain = result.fit.step * sums.xq + result.fit.minimum * sums.x;
  result.valid = result.fit.step > 0;
  return result;
}

}  // namespace

float FitScale(const float* x, int count, CodeRange range) {
  float extreme = 0;
  for (int i = 0; i < count; ++i) {
    if (std::abs(x[i]) > std::abs(extreme)) extreme = x[i];
  }
  if (!(std::abs(extreme) > kTiny)) return 0;
  ScaleSums best;
  // Maps the element with the largest magnitude to either end of the codes.
  for (const float end : {range.low, range.high}) {
    for (float reach = -kReach; reach < kReach + kReachStep / 2; reach += kReachStep) {
      const float target = end < 0 ? end - reach : end + reach;
      const ScaleSums sums = SumsAt(x, count, target / extreme, range);
      if (sums.gain() > best.gain()) best = sums;
    }
  }
  for (int i = 0; i < kRefinements && best.scale() != 0; ++i) {
    const ScaleSums sums = SumsAt(x, count, 1 / best.scale(), range);
    if (!(sums.gain() > best.gain())) break;
    best = sums;
  }
  return best.scale();
}

AffineFit FitAffine(const float* x, int count, float high, Minimum minimum) {
  float low = *std::min_element(x, x + count);
  const float top = *std::max_element(x, x + count);
  if (minimum == Minimum::kNotPositive) low = std::min(low, 0.0f);
  const float width = top - low;
  if (!(width > kTiny)) return {0, low};
  Candidate best = {.fit = {width / high, low}};
  for (float reach = -kReach; reach < kReach + kReachStep / 2; reach += kReachStep) {
    const float inverse = (high + reach) / width;
    const Candidate candidate = Solve(SumsAt(x, count, low, inverse, high), count, minimum);
    if (candidate.valid && (!best.valid || candidate.gain > best.gain)) best = candidate;
  }
  for (int i = 0; i < kRefinements; ++i) {
    const AffineSums sums = SumsAt(x, count, best.fit.minimum, 1 / best.fit.step, high);
    const Candidate candidate = Solve(sums, count, minimum);
    if (!candidate.valid || !(candidate.gain > best.gain)) break;
    best = candidate;
  }
  return best.fit;
}

float RoundCodes(const float* x, int count, AffineFit fit, CodeRange range, int8_t* codes) {
  const float inverse = fit.step != 0 ? 1 / fit.step : 0;
  float error = 0;
  for (int i = 0; i < count; ++i) {
    const float scaled = std::clamp((x[i] - fit.minimum) * inverse, range.low, range.high);
    const float code = kernels::RoundToEven(scaled);
    codes[i] = static_cast<int8_t>(code);
    const float left = x[i] - (fit.step * code + fit.minimum);
    error += left * left;
  }
  return error;
}

float ErrorOf(const float* x, int count, AffineFit fit, CodeRange range) {
  const float inverse = fit.step != 0 ? 1 / fit.step : 0;
  Lanes error = {};
  for (int i = 0; i < count; i += kLanes) {
    const Lanes value = Load(x + i);
    // Clamp before Round, because the product is too large for Round if the step is much too small.
    const Lanes code = Round(Clamp((value - fit.minimum) * inverse, range.low, range.high));
    const Lanes left = value - (code * fit.step + fit.minimum);
    error += left * left;
  }
  return Sum(error);
}

}  // namespace tidepool::engine::quantize
