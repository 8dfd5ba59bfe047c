// Scalar arithmetic that gives the same bits on every machine. The vector code in cpu/ gives the
// same bits in each lane. Only IEEE operations, explicit fused multiply-adds and bit operations are
// used, with the default rounding to nearest even. libm's exp and sin are never used, because their
// results depend on libm's version and on the CPU.
//
// All functions are `static`. The reason is that files compiled for different ISAs include this
// header, and the linker must not merge their functions. They are `constexpr` because GPU code can
// call such functions. GPU code cannot read arrays at namespace scope, so the functions first copy
// them.
#ifndef TIDEPOOL_KERNELS_MATH_H_
#define TIDEPOOL_KERNELS_MATH_H_

#include <cstdint>

// Clang does not evaluate __builtin_fmaf in constant expressions. Nothing here needs it to.
#ifdef __clang__
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Winvalid-constexpr"
#endif

namespace tidepool::kernels {

// The coefficients of a polynomial.
template <int kCount>
struct Coefficients {
  float c[kCount];
};

static constexpr uint32_t FloatBits(float value) { return __builtin_bit_cast(uint32_t, value); }

static constexpr float FloatFromBits(uint32_t bits) { return __builtin_bit_cast(float, bits); }

static constexpr float F16ToF32(uint16_t half) {
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

// Rounds to nearest even. Numbers that are too large become infinity, and a NaN becomes a quiet
// NaN.
static constexpr uint16_t F32ToF16(float value) {
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
  // Rounds in the integer representation. A carry out of the mantissa increments the exponent, so
  // numbers of 65520 and above become infinity.
  const uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
  return sign | ((rounded - 0x38000000) >> 13);
}

static constexpr float BF16ToF32(uint16_t half) {
  return FloatFromBits(static_cast<uint32_t>(half) << 16);
}

// Rounds to nearest even. A NaN becomes a quiet NaN.
static constexpr uint16_t F32ToBF16(float value) {
  const uint32_t bits = FloatBits(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return (bits >> 16) | 0x40;
  return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}

// Returns 2^(e - 128). It is half of the scale that the exponent e of an MXFP4 block means. The two
// smallest results are subnormal.
static constexpr float HalfOfE8M0(uint8_t e) {
  return FloatFromBits(e < 2 ? uint32_t{0x00200000} << e : static_cast<uint32_t>(e - 1) << 23);
}

// If |x| < 2^22, the low mantissa bits of x + kRoundingShift contain x, rounded to nearest even.
inline constexpr float kRoundingShift = 12582912.0f;  // 1.5 * 2^23

static constexpr float RoundToEven(float value) {
  return (value + kRoundingShift) - kRoundingShift;
}

// Exp computes x = n ln 2 + r with |r| <= ln 2 / 2, then e^r by a polynomial, then multiplies by
// 2^n.
inline constexpr float kExpLog2E = 0x1.715476p+0f;
inline constexpr float kExpLn2High = 0x1.62e400p-1f;  // 15 bits: n * high is exact
inline constexpr float kExpLn2Low = 0x1.7f7d1cp-20f;
// e^r = 1 + r + r^2 (c0 + c1 r + ...), with Taylor's coefficients. The first omitted term is r^8 /
// 8!, which is below 2^-27 of the result.
inline constexpr float kExpC0 = 1.0f / 2;
inline constexpr float kExpC1 = 1.0f / 6;
inline constexpr float kExpC2 = 1.0f / 24;
inline constexpr float kExpC3 = 1.0f / 120;
inline constexpr float kExpC4 = 1.0f / 720;
inline constexpr float kExpC5 = 1.0f / 5040;
// below this, the result is exactly 0 (the true value is less than 2^-125)
inline constexpr float kExpMin = -87.0f;
inline constexpr float kExpMax = 88.72283f;  // above this, the result is infinity

// Returns e^x with an error of at most 2 ulp. Exp(0) is exactly 1. Infinities and NaN give the
// usual results.
static constexpr float Exp(float x) {
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
  // Multiply by 2^n in two steps, because n can be 128, and the exponent field of 2^128 would mean
  // infinity.
  const int32_t exponent = static_cast<int32_t>(n);
  const int32_t half = exponent >> 1;
  const float first = FloatFromBits(static_cast<uint32_t>(half + 127) << 23);
  const float second = FloatFromBits(static_cast<uint32_t>(exponent - half + 127) << 23);
  return p * first * second;
}

// If |x| < kTanhSmall, Tanh computes x + x^3 P(x^2). P is the polynomial of degree 4 with the
// smallest maximum relative error (4.4e-9). Otherwise it computes (1 - t) / (1 + t) with t = e^(-2
// |x|).
inline constexpr float kTanhSmall = 0.625f;
inline constexpr Coefficients<5> kTanhP = {
    {-0x1.555532p-2f, 0x1.110726p-3f, -0x1.b83c5ap-5f, 0x1.52269ap-6f, -0x1.75e1cap-8f}};

// Returns tanh(x) with an error of at most 3 ulp.
static constexpr float Tanh(float x) {
  const float a = __builtin_fabsf(x);
  if (a < kTanhSmall) {
    const float z = x * x;
    constexpr Coefficients<5> k = kTanhP;
    float p = __builtin_fmaf(k.c[4], z, k.c[3]);
    p = __builtin_fmaf(p, z, k.c[2]);
    p = __builtin_fmaf(p, z, k.c[1]);
    p = __builtin_fmaf(p, z, k.c[0]);
    return __builtin_fmaf(p * z, x, x);
  }
  const float t = Exp(a * -2.0f);
  return __builtin_copysignf((1.0f - t) / (1.0f + t), x);
}

// Returns cap * tanh(x * factor). The caller computes factor = 1 / cap, multiplied by any scale of
// x. Infinities and NaN are returned unchanged (ops.h).
static constexpr float SoftCap(float x, float factor, float cap) {
  if (!(__builtin_fabsf(x) < __builtin_inff())) return x;
  return cap * Tanh(x * factor);
}

// The exponent in GeluTanh: gelu(x) = x (1 + tanh u) / 2 = x / (1 + e^(-2u)), with -2u = x (c0 + c1
// x^2).
inline constexpr float kGeluC0 = -1.5957691216057308f;  // -2 sqrt(2 / pi)
inline constexpr float kGeluC1 = -1.5957691216057308f * 0.044715f;

// Returns gelu(x), approximated by tanh.
static constexpr float GeluTanh(float x) {
  return x / (1.0f + Exp(x * __builtin_fmaf(kGeluC1, x * x, kGeluC0)));
}

// The tail of the normal distribution: erfc(a) = e^(-a Q(a)) for 0 <= a <= kErfcMax. Q is a
// polynomial of degree 10. With it, erfc has an error of at most 1.6e-8. For larger a, erfc is
// below 2e-12 and is replaced by 0.
inline constexpr float kErfcMax = 5.0f;
inline constexpr Coefficients<11> kErfcQ = {{0x1.20dd84p+0f, 0x1.45f108p-1f, 0x1.a54cf4p-4f,
                                             -0x1.3cdbf6p-6f, 0x1.db7b1cp-15f, 0x1.96ff3ep-10f,
                                             -0x1.49531cp-11f, 0x1.2691f2p-13f, -0x1.41ab68p-16f,
                                             0x1.9089acp-20f, -0x1.b476400p-25f}};
inline constexpr float kRootHalf = 0x1.6a09e6p-1f;  // sqrt(1/2)

// Returns gelu(x) = x (1 + erf(x / sqrt(2))) / 2.
static constexpr float Gelu(float x) {
  const float a = __builtin_fabsf(x) * kRootHalf;
  constexpr Coefficients<11> k = kErfcQ;
  float q = k.c[10];
  for (int i = 9; i >= 0; --i) q = __builtin_fmaf(q, a, k.c[i]);
  // The comparison is written so that the result for a NaN is NaN.
  const float tail = a > kErfcMax ? 0.0f : 0.5f * Exp(-(a * q));
  return x * (x < 0.0f ? tail : 1.0f - tail);
}

static constexpr float Sigmoid(float x) { return 1.0f / (1.0f + Exp(-x)); }

// Coefficients 1/3, 1/5, ... of the series log(1 + t) = 2 s (1 + z/3 + z^2/5 + ...). Here
// s = t / (2 + t) and z = s^2. For t <= 1, the first omitted term is below 2^-29 of the result.
inline constexpr Coefficients<7> kLog1pC = {
    {1.0f / 3, 1.0f / 5, 1.0f / 7, 1.0f / 9, 1.0f / 11, 1.0f / 13, 1.0f / 15}};

// Returns log(1 + e^x) with an error of at most 4 ulp. Below -87, it returns 0.
static constexpr float Softplus(float x) {
  const float t = Exp(-__builtin_fabsf(x));
  const float s = t / (2.0f + t);
  const float z = s * s;
  constexpr Coefficients<7> k = kLog1pC;
  float p = k.c[6];
  for (int i = 5; i >= 0; --i) p = __builtin_fmaf(p, z, k.c[i]);
  const float log1p = 2.0f * __builtin_fmaf(p * z, s, s);
  return x > 0.0f ? x + log1p : log1p;
}

static constexpr float Silu(float x) { return x / (1.0f + Exp(-x)); }

// Returns (u' + 1) g' sigmoid(alpha g') of GluForm::kClampedSwiGlu. If an input is NaN, so is the
// result.
static constexpr float ClampedSwiGlu(float gate, float up, float alpha, float limit) {
  const float g = gate > limit ? limit : gate;
  const float low = up < -limit ? -limit : up;
  const float u = low > limit ? limit : low;
  return (u + 1.0f) * (g / (1.0f + Exp(-(g * alpha))));
}

struct SinCosResult {
  double sin;
  double cos;
};

// Returns sin and cos of `angle` (in radians) with an error of at most 1e-15, if |angle| < 2^30.
// Returns NaN for larger angles and for NaN.
SinCosResult SinCos(double angle);

}  // namespace tidepool::kernels

#ifdef __clang__
#pragma clang diagnostic pop
#endif

#endif  // TIDEPOOL_KERNELS_MATH_H_
