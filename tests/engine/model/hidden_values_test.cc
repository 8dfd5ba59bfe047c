#include "engine/model/hidden_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/reference/reference_backend.h"

namespace tidepool::engine {
namespace {

using kernels::ConstMatrixView;
using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

ConstMatrixView TwoRows(const std::vector<float>& values) {
  return {values.data(), 2, static_cast<int64_t>(values.size()) / 2};
}

absl::Status Check(int layer, const std::vector<float>& values, std::vector<int32_t>* zero_since) {
  kernels::RowScan found[2];
  kernels::MakeReferenceBackend(kernels::Precision::kFast)
      ->ScanRows(TwoRows(values), kInfinity, found);
  return CheckHiddenValues(layer, found, absl::MakeSpan(*zero_since));
}

TEST(HiddenValues, TheLayerIsNamed) {
  std::vector<int32_t> zero_since(2);
  const auto check = [&](int layer, const std::vector<float>& values) {
    const absl::Status status = Check(layer, values, &zero_since);
    return status.ok() ? "" : std::string(status.message());
  };
  EXPECT_EQ(check(kEmbeddingLayer, {1, -2, 3, -4}), "");
  EXPECT_THAT(check(7, {1, -2, kNan, -4}), HasSubstr("the model's layer 7 has a NaN"));
  EXPECT_THAT(check(8, {1, -kInfinity, 3, -4}), HasSubstr("the model's layer 8 has an infinity"));
  EXPECT_THAT(check(kEmbeddingLayer, {kNan, 0, 0, 0}),
              HasSubstr("the model's embedding has a NaN"));
  EXPECT_EQ(check(9, {1, std::numeric_limits<float>::max(), 3, -4}), "");
}

TEST(HiddenValues, ZerosAreTracedToTheirFirstLayer) {
  std::vector<int32_t> zero_since(2);
  const auto check = [&](int layer, const std::vector<float>& values) {
    EXPECT_TRUE(Check(layer, values, &zero_since).ok());
  };
  check(kEmbeddingLayer, {0, 0, 1, 2});
  check(0, {0, 0, 1, 2});
  EXPECT_THAT(std::string(CheckNotZero(zero_since[0]).message()), HasSubstr("embedding is 0"));
  EXPECT_TRUE(CheckNotZero(zero_since[1]).ok());
  check(1, {0, 5, 0, -0.0f});
  check(2, {1, 5, 0, 0});
  EXPECT_TRUE(CheckNotZero(zero_since[0]).ok());
  EXPECT_THAT(std::string(CheckNotZero(zero_since[1]).message()), HasSubstr("layer 1 is 0"));
}

TEST(HiddenValues, EqualLogitsAreAnError) {
  EXPECT_TRUE(CheckLogits(TwoRows({1, 2, 1, 1.5f})).ok());
  EXPECT_THAT(std::string(CheckLogits(TwoRows({1, 2, 1.5f, 1.5f})).message()),
              HasSubstr("all logits of the model are 1.5"));
  EXPECT_TRUE(CheckLogits(TwoRows({1, 1})).ok());  // a vocabulary of one token
}

}  // namespace
}  // namespace tidepool::engine
