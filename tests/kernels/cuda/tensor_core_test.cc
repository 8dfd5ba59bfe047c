// Products on tensor cores have the CPU's bits: all quantised types, rows and outputs that do not
// fill tiles, bias, addition, gated FFNs, heads and groups of experts.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/tensor_core.h"
#include "tests/kernels/test_data.h"

namespace tidepool::kernels::cuda {
namespace {

constexpr size_t kArenaBytes = size_t{64} << 20;

// On the emulated device, device memory is host memory.
class TensorCoreTest : public testing::TestWithParam<DType> {
 protected:
  TensorCoreTest()
      : cpu_(*MakeCpuBackend({})),
        stream_(*MakeStream(0)),
        staging_(*StagingRing::Create(0, stream_)),
        context_{stream_, staging_.get(), Precision::kFast, *FindDevice(0)},
        arena_(kArenaBytes) {
    Spoil(&arena_);
  }
  ~TensorCoreTest() override {
    staging_.reset();
    DeleteStream(stream_);
  }

  // Rows of noise. Some blocks are zero, and one has an infinity.
  Activation Rows(int64_t rows, int64_t cols) {
    Noise noise(rows * 1000 + cols);
    const MatrixView values = arena_.AllocateMatrix(rows, cols);
    for (int64_t i = 0; i < rows * cols; ++i) values.data[i] = noise.Unit() * (1 + i % 3);
    for (int64_t row = 3; row < rows; row += 5) std::fill_n(values.Row(row), 32, 0.0f);
    if (rows > 4) values.Row(4)[5] = INFINITY;
    return cpu_->Quantize(values, &arena_);
  }

  MatrixView Filled(int64_t rows, int64_t cols, uint64_t seed) {
    Noise noise(seed);
    const MatrixView values = arena_.AllocateMatrix(rows, cols);
    for (int64_t i = 0; i < rows * cols; ++i) values.data[i] = noise.Unit();
    return values;
  }

  void Finish() { ASSERT_EQ(Synchronize(stream_).message(), ""); }

  std::unique_ptr<KernelBackend> cpu_;
  Stream* stream_;
  std::unique_ptr<StagingRing> staging_;
  CudaContext context_;
  Arena arena_;
};

// Bit by bit, except that all NaNs are equal.
void ExpectSameBits(ConstMatrixView actual, ConstMatrixView expected) {
  int64_t wrong = 0;
  for (int64_t row = 0; row < expected.rows; ++row) {
    for (int64_t col = 0; col < expected.cols; ++col) {
      const float a = actual.Row(row)[col];
      const float e = expected.Row(row)[col];
      if (FloatBits(a) == FloatBits(e) || (std::isnan(a) && std::isnan(e))) continue;
      if (++wrong < 4) ADD_FAILURE() << row << ", " << col << ": " << a << " is not " << e;
    }
  }
  EXPECT_EQ(wrong, 0);
}

void ExpectSameInt8(const Activation& actual, const Activation& expected) {
  const int64_t elements = expected.values.rows * expected.values.cols;
  ExpectSameBits(actual.values, expected.values);
  ASSERT_EQ(actual.quants == nullptr, expected.quants == nullptr);
  if (expected.quants == nullptr) return;
  const int64_t blocks = elements / 32;
  EXPECT_EQ(std::memcmp(actual.quants, expected.quants, elements), 0);
  EXPECT_EQ(std::memcmp(actual.half_sums, expected.half_sums, 4 * blocks), 0);
  ExpectSameBits({actual.scales, 1, blocks}, {expected.scales, 1, blocks});
  ExpectSameBits({actual.sums, 1, blocks}, {expected.sums, 1, blocks});
}

struct Size {
  int64_t rows, outputs, cols;
};

TEST_P(TensorCoreTest, TargetsHaveTheBitsOfTheCpu) {
  // Small and large tiles, one block and many, and parts of panels.
  for (const Size& size : {Size{17, 37, 32}, Size{33, 70, 288}, Size{49, 130, 160}, Size{131, 261, 64}}) {
    const int64_t cols = WholeBlocks(GetParam(), size.cols);
    SCOPED_TRACE(absl::StrCat(size.rows, " rows, ", size.outputs, " outputs, ", cols));
    const Weight weight(GetParam(), size.outputs, cols, 7);
    const Activation x = Rows(size.rows, cols);
    const MatrixView bias = Filled(1, size.outputs, 3);
    for (const bool add : {false, true}) {
      const MatrixView actual = Filled(size.rows, size.outputs, 9);
      const MatrixView expected = Filled(size.rows, size.outputs, 9);
      MatMulTarget target = {.weight = weight.matrix(), .out = actual};
      if (add) {
        target.bias = {bias.data, static_cast<size_t>(size.outputs)};
        target.store = Store::kAdd;
      }
      ASSERT_TRUE(UsesTensorCores(context_, target.weight, size.rows));
      TensorCoreTarget(context_, x, target);
      target.out = expected;
      cpu_->MatMul(x, {target});
      Finish();
      ExpectSameBits(actual, expected);
    }
    arena_.Reset();
  }
}

std::string TypeName(const testing::TestParamInfo<DType>& info) {
  return std::string(DTypeName(info.param));
}

std::vector<DType> QuantisedTypes() {
  std::vector<DType> types;
  for (const DType type : kAllDTypes) {
    if (IsQuantised(type)) types.push_back(type);
  }
  return types;
}

INSTANTIATE_TEST_SUITE_P(Types, TensorCoreTest, testing::ValuesIn(QuantisedTypes()), TypeName);

}  // namespace
}  // namespace tidepool::kernels::cuda
