#include "moe/policy/chance_curves.h"

#include <vector>

#include "gtest/gtest.h"

namespace tidepool::moe {
namespace {

constexpr int kStride = 4;
constexpr int kLast = ChanceCurves::kForwards - 1;

TEST(ChanceCurvesTest, WhatIsSaidOfAForwardHoldsAsItComesNearer) {
  ChanceCurves curves(kStride);
  curves.Set(2, 5, {3, 1}, {0.25f, 0.5f});
  for (int nearer = 0; nearer < 3; ++nearer) {
    for (int forward = 0; forward < 6; ++forward) {
      const bool said = forward >= 2 - nearer && forward < 5 - nearer;
      EXPECT_EQ(curves.At(forward)[3], said ? 0.25f : 0) << nearer << " " << forward;
      EXPECT_EQ(curves.At(forward)[1], said ? 0.5f : 0) << nearer << " " << forward;
      EXPECT_EQ(curves.At(forward)[0], 0);
    }
    curves.Advance();
  }
  curves.Set(0, 1, {1}, {0.75f});
  EXPECT_EQ(curves.At(0)[1], 0.75f);
  EXPECT_EQ(curves.At(0)[3], 0.25f);
}

TEST(ChanceCurvesTest, TheLastForwardIsAsTheOneBefore) {
  ChanceCurves curves(kStride);
  curves.Set(0, 1, {2}, {0.9f});
  curves.Set(kLast, kLast + 1, {2}, {0.125f});
  for (int i = 0; i < 3 * ChanceCurves::kForwards; ++i) curves.Advance();
  for (int forward = 0; forward <= kLast; ++forward) EXPECT_EQ(curves.At(forward)[2], 0.125f);
}

}  // namespace
}  // namespace tidepool::moe
