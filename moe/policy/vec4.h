// Vectors of four floats and of two doubles, with the functions that the policies need. Results are
// bit-identical on all machines: only additions, multiplications, divisions and integer operations
// are used, and none of them is fused with another.
#ifndef TIDEPOOL_MOE_POLICY_VEC4_H_
#define TIDEPOOL_MOE_POLICY_VEC4_H_

#include <cstdint>
#include <cstring>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace tidepool::moe {

inline constexpr int kLanes = 4;
using Vec4 = float __attribute__((vector_size(16)));
using Int4 = int32_t __attribute__((vector_size(16)));

inline Vec4 Load4(const float* values) {
  Vec4 vector;
  std::memcpy(&vector, values, sizeof vector);
  return vector;
}
inline void Store4(Vec4 vector, float* values) { std::memcpy(values, &vector, sizeof vector); }

// Vectors of two doubles.
using Double2 = double __attribute__((vector_size(16)));

inline Double2 Load2(const double* values) {
  Double2 vector;
  std::memcpy(&vector, values, sizeof vector);
  return vector;
}
inline void Store2(Double2 vector, double* values) { std::memcpy(values, &vector, sizeof vector); }

// Returns whether any of four comparisons is true.
inline bool AnyOf4(Int4 which) {
  int64_t halves[2];
  std::memcpy(halves, &which, sizeof which);
  return (halves[0] | halves[1]) != 0;
}

#if defined(__SSE__)
// The instructions do the same as the conditions below, but GCC 12 does not find them.
inline Vec4 Max4(Vec4 a, Vec4 b) { return _mm_max_ps(a, b); }
inline Vec4 Min4(Vec4 a, Vec4 b) { return _mm_min_ps(a, b); }
#else
inline Vec4 Max4(Vec4 a, Vec4 b) { return a > b ? a : b; }
inline Vec4 Min4(Vec4 a, Vec4 b) { return a < b ? a : b; }
#endif
inline Vec4 Clamp4(Vec4 v, float min, float max) {
  return Min4(Max4(v, Vec4{} + min), Vec4{} + max);
}

// The logarithm to base 2 of positive normal numbers. The absolute error is below 4e-6.
inline Vec4 Log4(Vec4 v) {
  Int4 bits;
  std::memcpy(&bits, &v, sizeof bits);
  const Int4 exponent = (bits >> 23) - 127;
  bits = (bits & 0x7fffff) | 0x3f800000;
  Vec4 t;
  std::memcpy(&t, &bits, sizeof t);
  t -= 1.0f;
  const Vec4 mantissa =
      t * (1.44253728f +
           t * (-0.71803483f +
                t * (0.45715891f + t * (-0.27734213f + t * (0.12147316f + t * -0.02579239f)))));
  return __builtin_convertvector(exponent, Vec4) + mantissa;
}

// 2 to the power of v, for |v| < 126. The relative error is below 2e-7.
inline Vec4 Exp4(Vec4 v) {
  // The conversion truncates. The offset makes all numbers positive, so truncating is rounding
  // down.
  const Int4 whole = __builtin_convertvector(v + 128.0f, Int4) - 128;
  const Vec4 t = v - __builtin_convertvector(whole, Vec4);
  const Vec4 fraction =
      1.0f +
      t * (0.69315254f + t * (0.24015244f + t * (0.0558366f + t * (0.0089729f + t * 0.0018854f))));
  const Int4 bits = (whole + 127) << 23;
  Vec4 power;
  std::memcpy(&power, &bits, sizeof power);
  return fraction * power;
}

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_VEC4_H_
