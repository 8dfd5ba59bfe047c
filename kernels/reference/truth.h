// Scalar functions, computed by their definitions in float64 with libm. Only for kernels/reference.
#ifndef TIDEPOOL_KERNELS_REFERENCE_TRUTH_H_
#define TIDEPOOL_KERNELS_REFERENCE_TRUTH_H_

#include <cmath>

#include "kernels/backend.h"

namespace tidepool::kernels {

inline double SigmoidTruth(double x) { return 1 / (1 + std::exp(-x)); }

inline double SoftplusTruth(double x) {
  return std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x)));
}

// See ops.h. A cap of 0 means no soft-cap.
inline double SoftCapTruth(double x, float cap) {
  return cap == 0 || !std::isfinite(x) ? x : cap * std::tanh(x / cap);
}

inline double GluTruth(const Glu& glu, double gate, double up) {
  const double limit = glu.limit;
  switch (glu.form) {
    case GluForm::kSwiGlu:
      return gate * SigmoidTruth(gate) * up;
    case GluForm::kGeGlu:
      return 0.5 * gate * std::erfc(-gate * std::sqrt(0.5)) * up;
    case GluForm::kGeGluTanh:
      // (1 + tanh u) / 2 is sigmoid(2 u).
      return gate * SigmoidTruth(2 * std::sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate)) *
             up;
    case GluForm::kClampedSwiGlu:
      // Written so that the result for a NaN is NaN.
      gate = gate > limit ? limit : gate;
      up = up > limit ? limit : up < -limit ? -limit : up;
      return (up + 1) * gate * SigmoidTruth(glu.alpha * gate);
  }
  return NAN;
}

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_REFERENCE_TRUTH_H_
