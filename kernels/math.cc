#include "kernels/math.h"

#include <cmath>
#include <limits>

namespace tidepool::kernels {
namespace {

// Pi / 2 as the sum of three parts of 53 bits. Each n * part is subtracted by a fused multiply-add,
// so only the last subtraction is rounded.
constexpr double kHalfPiHigh = 0x1.921fb54442d18p+0;
constexpr double kHalfPiMiddle = 0x1.1a62633145c07p-54;
constexpr double kHalfPiLow = -0x1.f1976b7ed8fbcp-110;
constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
constexpr double kMaxAngle = 0x1p30;

// Taylor coefficients. For |r| <= pi / 4, the first omitted term is below 1e-19.
constexpr double kSin[] = {-1.0 / 6,
                           1.0 / 120,
                           -1.0 / 5040,
                           1.0 / 362880,
                           -1.0 / 39916800,
                           1.0 / 6227020800.0,
                           -1.0 / 1307674368000.0,
                           1.0 / 355687428096000.0};
constexpr double kCos[] = {
    -1.0 / 2,       1.0 / 24,          -1.0 / 720,           1.0 / 40320,
    -1.0 / 3628800, 1.0 / 479001600.0, -1.0 / 87178291200.0, 1.0 / 20922789888000.0};

double Polynomial(const double (&coefficients)[8], double z) {
  double sum = coefficients[7];
  for (int i = 6; i >= 0; --i) sum = std::fma(sum, z, coefficients[i]);
  return sum;
}

}  // namespace

SinCosResult SinCos(double angle) {
  if (!(std::fabs(angle) < kMaxAngle)) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    return {nan, nan};
  }
  const double n = std::nearbyint(angle * kTwoOverPi);
  double r = std::fma(-n, kHalfPiHigh, angle);
  r = std::fma(-n, kHalfPiMiddle, r);
  r = std::fma(-n, kHalfPiLow, r);
  const double z = r * r;
  const double sin = std::fma(r * z, Polynomial(kSin, z), r);
  const double cos = std::fma(z, Polynomial(kCos, z), 1.0);
  switch (static_cast<int64_t>(n) & 3) {
    case 0:
      return {sin, cos};
    case 1:
      return {cos, -sin};
    case 2:
      return {-sin, -cos};
    default:
      return {-cos, sin};
  }
}

}  // namespace tidepool::kernels
