// Scalar arithmetic with the same bits on every machine and in each lane of the SIMD forms in cpu/.
// It uses only IEEE operations, explicit fused multiply-adds and bit operations, and the default
// rounding to nearest even. It never uses libm's exp or sin, whose results depend on its version
// and the CPU.
//
// All functions are `static`: files that are compiled for different ISAs include this header, and
// the linker must not merge their functions.
#ifndef TIDEPOOL_KERNELS_MATH_H_
#define TIDEPOOL_KERNELS_MATH_H_

#include <cstdint>
#include <cstring>

namespace tidepool::kernels {

static inline uint32_t FloatBits(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  return bits;
}

static inline float FloatFromBits(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

static inline float F16ToF32(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = (half >> 10) & 31;
  const uint32_t mantissa = half & 0x3ff;
  if (exponent == 31) {  // infinity, or a NaN, which becomes quiet
    return FloatFromBits(sign | 0x7f800000 | mantissa << 13 | (mantissa != 0 ? 0x400000 : 0));
  }
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, exact
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return FloatFromBits(sign | FloatBits(magnitude));
  }
  return FloatFromBits(sign | (exponent + 112) << 23 | mantissa << 13);
}

// Rounds to nearest even. Larger numbers become infinity, and NaN becomes a quiet NaN.
static inline uint16_t F32ToF16(float value) {
  const uint32_t bits = FloatBits(value);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00 | ((magnitude >> 13) & 0x3ff);
  if (magnitude >= 0x47800000) return sign | 0x7c00;  // 65536 and above
  if (magnitude < 0x38800000) {                       // below the smallest normal, 2^-14
    // After adding 0.5, the low bits contain the value as a multiple of 2^-24, rounded to nearest
    // even.
    const float shifted = FloatFromBits(magnitude) + 0.5f;
    return sign | (FloatBits(shifted) - 0x3f000000);
  }
  // Rounds in place. A carry out of the mantissa increments the exponent, which gives infinity
  // above 65519.
  const uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
  return sign | ((rounded - 0x38000000) >> 13);
}

static inline float BF16ToF32(uint16_t half) {
  return FloatFromBits(static_cast<uint32_t>(half) << 16);
}

// Rounds to nearest even. NaN becomes a quiet NaN.
static inline uint16_t F32ToBF16(float value) {
  const uint32_t bits = FloatBits(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return (bits >> 16) | 0x40;
  return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}

// Returns 2^(e - 128), half of the scale that exponent e of an MXFP4 block means. The two smallest
// are subnormal.
static inline float HalfOfE8M0(uint8_t e) {
  return FloatFromBits(e < 2 ? uint32_t{0x00200000} << e : static_cast<uint32_t>(e - 1) << 23);
}

// Added to x with |x| < 2^22, this puts x, rounded to the nearest even integer, into the low
// mantissa bits.
inline constexpr float kRoundingShift = 12582912.0f;  // 1.5 * 2^23

static inline float RoundToEven(float value) { return (value + kRoundingShift) - kRoundingShift; }

// Exp: x = n ln 2 + r with |r| <= ln 2 / 2, then a polynomial for e^r and a shift by n.
inline constexpr float kExpLog2E = 0x1.715476p+0f;
inline constexpr float kExpLn2High = 0x1.62e400p-1f;  // 15 bits: n * high is exact
inline constexpr float kExpLn2Low = 0x1.7f7d1cp-20f;
// e^r = 1 + r + r^2 (c0 + c1 r + ...): the Taylor coefficients. The first term left out is r^8 /
// 8!, below 2^-27 of the result.
inline constexpr float kExpC0 = 1.0f / 2;
inline constexpr float kExpC1 = 1.0f / 6;
inline constexpr float kExpC2 = 1.0f / 24;
inline constexpr float kExpC3 = 1.0f / 120;
inline constexpr float kExpC4 = 1.0f / 720;
inline constexpr float kExpC5 = 1.0f / 5040;
inline constexpr float kExpMin = -87.0f;  // below this: exactly 0 (the true value is under 2^-125)
inline constexpr float kExpMax = 88.72283f;  // above this: infinity

// Returns e^x to within 2 ulp, and exactly 1 at 0. Infinities and NaN give the usual results.
static inline float Exp(float x) {
  if (x < kExpMin) return 0.0f;
  if (x > kExpMax) return __builtin_inff();
  if (x != x) return x;
  const float n = RoundToEven(x * kExpLog2E);
  const float r = __builtin_fmaf(-n, kExpLn2Low, __builtin_fmaf(-n, kExpLn2High, x));
  float p = __builtin_fmaf(kExpC5, r, kExpC4);
  p = __builtin_fmaf(p, r, kExpC3);
  p = __builtin_fmaf(p, r, kExpC2);
  p = __builtin_fmaf(p, r, kExpC1);
  p = __builtin_fmaf(p, r, kExpC0);
  p = __builtin_fmaf(p, r * r, r) + 1.0f;
  // Multiply by 2^n in two steps, because n can be 128, whose exponent field would mean infinity.
  const int32_t exponent = static_cast<int32_t>(n);
  const int32_t half = exponent >> 1;
  const float first = FloatFromBits(static_cast<uint32_t>(half + 127) << 23);
  const float second = FloatFromBits(static_cast<uint32_t>(exponent - half + 127) << 23);
  return p * first * second;
}

static inline float Sigmoid(float x) { return 1.0f / (1.0f + Exp(-x)); }

static inline float Silu(float x) { return x / (1.0f + Exp(-x)); }

struct SinCosResult {
  double sin;
  double cos;
};

// Returns sin and cos of `angle` radians to within 1e-15, for |angle| < 2^30. NaN for larger angles
// and for NaN.
SinCosResult SinCos(double angle);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_MATH_H_
