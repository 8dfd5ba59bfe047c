#include "kernels/math.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace tidepool::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(MathTest, HalfRoundsToNearestEven) {
  EXPECT_EQ(F32ToF16(1.0f), 0x3c00);
  EXPECT_EQ(F32ToF16(-2.0f), 0xc000);
  EXPECT_EQ(F32ToF16(1 + 0x1p-11f), 0x3c00);  // halfway: to even
  EXPECT_EQ(F32ToF16(1 + 0x1p-11f + 0x1p-20f), 0x3c01);
  EXPECT_EQ(F32ToF16(1 + 3 * 0x1p-11f), 0x3c02);  // halfway: to even, upward
  EXPECT_EQ(F32ToF16(65504.0f), 0x7bff);
  EXPECT_EQ(F32ToF16(65519.0f), 0x7bff);
  EXPECT_EQ(F32ToF16(65520.0f), 0x7c00);  // to infinity
  EXPECT_EQ(F32ToF16(1e30f), 0x7c00);
  EXPECT_EQ(F32ToF16(0x1p-24f), 0x0001);  // the smallest subnormal
  EXPECT_EQ(F32ToF16(0x1p-25f), 0x0000);  // halfway between 0 and the smallest: rounds to even
  EXPECT_EQ(F32ToF16(0x1.8p-25f), 0x0001);
  EXPECT_EQ(F32ToF16(-0.0f), 0x8000);
  EXPECT_EQ(F32ToF16(-kInf), 0xfc00);
  EXPECT_TRUE(std::isnan(F16ToF32(F32ToF16(NAN))));
}

TEST(MathTest, EveryHalfSurvivesARoundTrip) {
  for (int bits = 0; bits < 65536; ++bits) {
    const float value = F16ToF32(static_cast<uint16_t>(bits));
    if (std::isnan(value)) continue;
    ASSERT_EQ(F32ToF16(value), bits);
    const int exponent = (bits >> 10) & 31;
    const int mantissa = bits & 0x3ff;
    const double magnitude = exponent == 31  ? double{kInf}
                             : exponent == 0 ? std::ldexp(mantissa, -24)
                                             : std::ldexp(1024 + mantissa, exponent - 25);
    ASSERT_EQ(value, static_cast<float>(bits & 0x8000 ? -magnitude : magnitude));
  }
}

TEST(MathTest, BrainFloatRoundsToNearestEven) {
  EXPECT_EQ(F32ToBF16(1.0f), 0x3f80);
  EXPECT_EQ(F32ToBF16(FloatFromBits(0x3f808000)), 0x3f80);
  EXPECT_EQ(F32ToBF16(FloatFromBits(0x3f808001)), 0x3f81);
  EXPECT_EQ(F32ToBF16(FloatFromBits(0x3f818000)), 0x3f82);
  EXPECT_EQ(F32ToBF16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_TRUE(std::isnan(BF16ToF32(F32ToBF16(FloatFromBits(0x7f800001)))));
}

TEST(MathTest, ExpIsWithinTwoUlp) {
  double worst = 0;
  for (uint32_t bits = 0; bits < 0x42b17218; bits += 997) {
    for (const uint32_t sign : {0u, 0x80000000u}) {
      const float x = FloatFromBits(bits | sign);
      if (x < -87.0f || x > 88.72283f) continue;
      const double truth = std::exp(static_cast<double>(x));
      worst = std::max(worst, std::fabs(Exp(x) - truth) / truth);
    }
  }
  EXPECT_LT(worst, 2 * 0x1p-23);
  EXPECT_GT(worst, 0.0);
}

TEST(MathTest, ExpAtItsEnds) {
  EXPECT_EQ(Exp(0.0f), 1.0f);
  EXPECT_EQ(Exp(-0.0f), 1.0f);
  EXPECT_EQ(Exp(-kInf), 0.0f);
  EXPECT_EQ(Exp(-100.0f), 0.0f);
  EXPECT_EQ(Exp(kInf), kInf);
  EXPECT_EQ(Exp(89.0f), kInf);
  EXPECT_TRUE(std::isfinite(Exp(88.72f)));
  EXPECT_TRUE(std::isnan(Exp(NAN)));
}

TEST(MathTest, SiluAndSigmoid) {
  for (float x = -90; x <= 90; x += 0.37f) {
    const double sigmoid = 1 / (1 + std::exp(-static_cast<double>(x)));
    EXPECT_NEAR(Sigmoid(x), sigmoid, 1e-6 * sigmoid + 1e-37);
    EXPECT_NEAR(Silu(x), x * sigmoid, 1e-6 * std::fabs(x * sigmoid) + 1e-35);
  }
  EXPECT_EQ(Silu(0.0f), 0.0f);
  EXPECT_TRUE(std::isnan(Silu(NAN)));
}

TEST(MathTest, SoftplusIsWithinFourUlp) {
  double worst = 0;
  for (uint32_t bits = 0; bits < 0x42ae0000; bits += 997) {  // up to 87
    for (const uint32_t sign : {0u, 0x80000000u}) {
      const float x = FloatFromBits(bits | sign);
      const double wide = x;
      const double truth = std::max(wide, 0.0) + std::log1p(std::exp(-std::fabs(wide)));
      worst = std::max(worst, std::fabs(Softplus(x) - truth) / truth);
    }
  }
  EXPECT_LT(worst, 4 * 0x1p-23);
  EXPECT_GT(worst, 0.0);
  EXPECT_EQ(Softplus(1e30f), 1e30f);
  EXPECT_EQ(Softplus(-100.0f), 0.0f);
  EXPECT_EQ(Softplus(kInf), kInf);
  EXPECT_EQ(Softplus(-kInf), 0.0f);
  EXPECT_TRUE(std::isnan(Softplus(NAN)));
}

TEST(MathTest, TanhIsWithinThreeUlp) {
  double worst = 0;
  for (uint32_t bits = 1; bits < 0x42000000; bits += 997) {  // up to 32
    const float x = FloatFromBits(bits);
    const double truth = std::tanh(static_cast<double>(x));
    worst = std::max(worst, std::fabs(Tanh(x) - truth) / truth);
    EXPECT_EQ(Tanh(-x), -Tanh(x));
  }
  EXPECT_LT(worst, 3 * 0x1p-23);
  EXPECT_EQ(Tanh(kInf), 1.0f);
  EXPECT_EQ(Tanh(-kInf), -1.0f);
  EXPECT_EQ(Tanh(0.0f), 0.0f);
  EXPECT_TRUE(std::isnan(Tanh(NAN)));
}

TEST(MathTest, SoftCapKeepsInfinitiesAndNans) {
  EXPECT_EQ(SoftCap(1e30f, 1 / 30.0f, 30), 30.0f);
  EXPECT_EQ(SoftCap(kInf, 1 / 30.0f, 30), kInf);
  EXPECT_EQ(SoftCap(-kInf, 1 / 30.0f, 30), -kInf);
  EXPECT_TRUE(std::isnan(SoftCap(NAN, 1 / 30.0f, 30)));
  for (float x = -200; x <= 200; x += 0.37f) {
    const double truth = 50 * std::tanh(static_cast<double>(x) / 50);
    EXPECT_NEAR(SoftCap(x, 1 / 50.0f, 50), truth, 5e-7 * std::fabs(truth)) << x;
  }
}

// The error is relative to |x|, like the error of 1 + erf and 1 + tanh in float32. Below 0, the
// error of the tail is much smaller.
TEST(MathTest, GeluInBothForms) {
  double worst = 0;
  double worst_tanh = 0;
  for (float x = -20; x <= 20; x += 0.00037f) {
    const double exact = 0.5 * x * std::erfc(-x * std::sqrt(0.5));
    const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * std::pow(static_cast<double>(x), 3));
    const double by_tanh = x / (1 + std::exp(-2 * u));
    worst = std::max(worst, std::fabs(Gelu(x) - exact) / std::fabs(x));
    worst_tanh = std::max(worst_tanh, std::fabs(GeluTanh(x) - by_tanh) / std::fabs(x));
    if (x > -7 && x < 0) {
      EXPECT_NEAR(Gelu(x), exact, 1e-5 * std::fabs(exact)) << x;
    }
    if (x > -9 && x < 0) {
      EXPECT_NEAR(GeluTanh(x), by_tanh, 2e-5 * std::fabs(by_tanh)) << x;
    }
  }
  EXPECT_LT(worst, 2 * 0x1p-23);
  EXPECT_LT(worst_tanh, 2 * 0x1p-23);
  for (const auto gelu : {Gelu, GeluTanh}) {
    EXPECT_EQ(gelu(0.0f), 0.0f);
    EXPECT_EQ(gelu(1e30f), 1e30f);
    EXPECT_EQ(gelu(-1e30f), 0.0f);
    EXPECT_EQ(gelu(kInf), kInf);
    EXPECT_TRUE(std::isnan(gelu(NAN)));
  }
}

TEST(MathTest, ClampedSwiGluClamps) {
  const auto truth = [](double gate, double up) {
    gate = std::min(gate, 7.0);
    up = std::clamp(up, -7.0, 7.0);
    return (up + 1) * gate / (1 + std::exp(-1.702 * gate));
  };
  for (const float gate : {-100.0f, -8.0f, -1.0f, 0.0f, 0.3f, 6.99f, 7.0f, 8.0f, 1e30f}) {
    for (const float up : {-1e30f, -8.0f, -7.0f, -1.0f, 0.0f, 2.5f, 7.0f, 1e30f}) {
      const double expected = truth(gate, up);
      EXPECT_NEAR(ClampedSwiGlu(gate, up, 1.702f, 7), expected, 2e-6 * std::fabs(expected) + 1e-36)
          << gate << ", " << up;
    }
  }
  EXPECT_TRUE(std::isnan(ClampedSwiGlu(NAN, 1, 1.702f, 7)));
  EXPECT_TRUE(std::isnan(ClampedSwiGlu(1, NAN, 1.702f, 7)));
}

TEST(MathTest, SinCosHoldsOverLongContexts) {
  for (double angle = -5; angle < 4e6; angle = angle * 1.0007 + 0.0131) {
    const SinCosResult result = SinCos(angle);
    EXPECT_NEAR(result.sin, std::sin(angle), 1e-15) << angle;
    EXPECT_NEAR(result.cos, std::cos(angle), 1e-15) << angle;
  }
  EXPECT_EQ(SinCos(0).cos, 1.0);
  EXPECT_EQ(SinCos(0).sin, 0.0);
  EXPECT_TRUE(std::isnan(SinCos(0x1p31).sin));
  EXPECT_TRUE(std::isnan(SinCos(NAN).cos));
}

}  // namespace
}  // namespace tidepool::kernels
