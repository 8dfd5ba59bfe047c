#include "kernels/reference/int8_form.h"

#include <algorithm>
#include <cmath>

#include "kernels/panel.h"

namespace tidepool::kernels {

void QuantizeBlock(const float* x, int64_t block, const ActivationBuffer& out, int64_t row) {
  const int64_t blocks = out.values.cols / kQuantBlock;
  int8_t* q = out.quants + row * out.values.cols + block * kQuantBlock;
  float amax = 0;
  bool finite = true;
  for (int k = 0; k < kQuantBlock; ++k) {
    finite = finite && std::isfinite(x[k]);
    amax = std::max(amax, std::fabs(x[k]));
  }
  const bool zero = !finite || amax < kTinyBlock;
  const float scale = !finite ? NAN : zero ? 0.0f : amax / 127;
  int16_t* half_sums = out.half_sums + 2 * (row * blocks + block);
  half_sums[0] = half_sums[1] = 0;
  for (int k = 0; k < kQuantBlock; ++k) {
    q[k] = zero ? 0 : static_cast<int8_t>(std::nearbyint(x[k] * (127 / amax)));
    half_sums[k / kHalfBlock] += q[k];
  }
  out.scales[row * blocks + block] = scale;
  out.sums[row * blocks + block] = scale * static_cast<float>(half_sums[0] + half_sums[1]);
}

void QuantizeRows(ConstMatrixView values, const ActivationBuffer& out) {
  if (out.quants == nullptr) return;
  for (int64_t row = 0; row < values.rows; ++row) {
    for (int64_t b = 0; b < values.cols / kQuantBlock; ++b) {
      QuantizeBlock(values.Row(row) + b * kQuantBlock, b, out, row);
    }
  }
}

}  // namespace tidepool::kernels
