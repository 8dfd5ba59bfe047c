// Keys and values that a KV type cannot represent.
#include "engine/model/kv_values.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/reference/reference_backend.h"
#include "kernels/tensor.h"

namespace tidepool::engine {
namespace {

using kernels::DType;
using ::testing::HasSubstr;

constexpr int64_t kRows = 3;
constexpr int64_t kCols = 64;

absl::Status Check(DType dtype, float value, absl::string_view what = "key") {
  std::vector<float> values(kRows * kCols, -3.5f);
  values[2 * kCols - 1] = value;
  kernels::RowScan found[kRows];
  kernels::MakeReferenceBackend(kernels::Precision::kFast)
      ->ScanRows({values.data(), kRows, kCols}, KvLimit(dtype), found);
  return CheckKvValues(7, what, dtype, found);
}

TEST(KvValuesTest, TheLargestNumberOfEachTypeIsTaken) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  EXPECT_TRUE(Check(DType::kF16, 65504).ok());
  EXPECT_TRUE(Check(DType::kF16, -65519.9f).ok());  // is rounded down
  EXPECT_TRUE(Check(DType::kBF16, 3.38e38f).ok());
  EXPECT_TRUE(Check(DType::kQ8_0, 8.3e6f).ok());
  EXPECT_TRUE(Check(DType::kF32, kLargest).ok());
  EXPECT_FALSE(Check(DType::kF16, 65520).ok());
  EXPECT_FALSE(Check(DType::kF16, -65520).ok());
  EXPECT_FALSE(Check(DType::kBF16, kLargest).ok());
  EXPECT_FALSE(Check(DType::kQ8_0, -8.33e6f).ok());
}

TEST(KvValuesTest, NotANumberAndInfinitiesAreRefusedByAll) {
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kQ8_0, DType::kF32}) {
    EXPECT_FALSE(Check(dtype, std::nanf("")).ok());
    EXPECT_FALSE(Check(dtype, -std::nanf("")).ok());
    EXPECT_FALSE(Check(dtype, std::numeric_limits<float>::infinity()).ok());
    EXPECT_FALSE(Check(dtype, -std::numeric_limits<float>::infinity()).ok());
  }
}

TEST(KvValuesTest, TheErrorNamesLayerValueLimitAndRemedy) {
  const absl::Status key = Check(DType::kF16, -70000);
  EXPECT_EQ(key.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(key.message()), HasSubstr("layer 7 computed a key of -70000"));
  EXPECT_THAT(std::string(key.message()), HasSubstr("65504"));
  EXPECT_THAT(std::string(key.message()), HasSubstr("--kv-type bf16 or f32"));
  const absl::Status value = Check(DType::kF32, std::nanf(""), "value");
  EXPECT_THAT(std::string(value.message()), HasSubstr("layer 7 computed a value that is NaN"));
}

}  // namespace
}  // namespace tidepool::engine
