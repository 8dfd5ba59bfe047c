// Vectors of four floats and of eight doubles, with the functions that the policies need. Results
// are bit-identical on all machines: only additions, multiplications, divisions and integer
// operations are used, and none of them is fused with another.
#ifndef TIDEPOOL_MOE_POLICY_VEC4_H_
#define TIDEPOOL_MOE_POLICY_VEC4_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
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
inline Int4 LoadInt4(const int32_t* values) {
  Int4 vector;
  std::memcpy(&vector, values, sizeof vector);
  return vector;
}
inline void Store4(Vec4 vector, float* values) { std::memcpy(values, &vector, sizeof vector); }

// Sets the first two elements of row[i] to element i of `a` and of `b`. The other two are not
// specified.
inline void Interleave4(Vec4 a, Vec4 b, Vec4 row[4]) {
  row[0] = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  row[1] = __builtin_shufflevector(a, b, 1, 5, 0, 4);
  row[2] = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  row[3] = __builtin_shufflevector(a, b, 3, 7, 2, 6);
}

// Vectors of two doubles.
using Double2 = double __attribute__((vector_size(16)));

inline Double2 Load2(const double* values) {
  Double2 vector;
  std::memcpy(&vector, values, sizeof vector);
  return vector;
}
inline void Store2(Double2 vector, double* values) { std::memcpy(values, &vector, sizeof vector); }

// Eight doubles. A chain of operations on them takes little longer than one on two doubles, because
// the four parts do not wait for each other. (GCC 12 compiles its own vectors of this size badly
// for the baseline of x86.)
struct Double8 {
  static constexpr int kSize = 8;
  Double2 parts[kSize / 2];

  double operator[](int i) const { return parts[i / 2][i % 2]; }
  // Sets each part to apply(part, the same part of `other`).
  template <typename Apply>
  void Combine(const Double8& other, const Apply& apply) {
#pragma GCC unroll 4
    for (int i = 0; i < kSize / 2; ++i) parts[i] = apply(parts[i], other.parts[i]);
  }
  Double8& operator+=(double addend) {
    for (Double2& part : parts) part += addend;
    return *this;
  }
  Double8& operator*=(const Double8& other) {
    Combine(other, [](Double2 a, Double2 b) { return a * b; });
    return *this;
  }
  Double8& operator-=(const Double8& other) {
    Combine(other, [](Double2 a, Double2 b) { return a - b; });
    return *this;
  }
};

inline Double8 operator*(Double8 a, const Double8& b) { return a *= b; }

// Returns 1 / sqrt(values).
inline Double8 InverseRoot8(Double8 values) {
  for (Double2& part : values.parts) part = 1 / Double2{std::sqrt(part[0]), std::sqrt(part[1])};
  return values;
}

// Returns whether any of four comparisons is true.
inline bool AnyOf4(Int4 which) {
#if defined(__SSE2__)
  return _mm_movemask_epi8(reinterpret_cast<__m128i>(which)) != 0;
#else
  int64_t halves[2];
  std::memcpy(halves, &which, sizeof which);
  return (halves[0] | halves[1]) != 0;
#endif
}

#if defined(__SSE2__)
// The instructions do the same as the conditions below, but GCC 12 does not generate them from the
// conditions.
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
