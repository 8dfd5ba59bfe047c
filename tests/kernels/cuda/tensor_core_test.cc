// Products on tensor cores have the CPU's bits. The cases are all quantised types, rows and outputs
// that do not fill tiles, bias, addition, gated FFNs, heads and groups of experts.
#include "kernels/cuda/tensor_core.h"

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

// Compares bit by bit, except that all NaNs are equal.
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
  // The sizes use small and large tiles, one block and many, and parts of panels.
  for (const Size& size :
       {Size{17, 37, 32}, Size{33, 70, 288}, Size{49, 130, 160}, Size{131, 261, 64}}) {
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
      TensorCoreTarget(context_, x, 0, target);
      target.out = expected;
      cpu_->MatMul(x, {target});
      Finish();
      ExpectSameBits(actual, expected);
    }
    arena_.Reset();
  }
}

constexpr Glu kGlus[] = {
    {.form = GluForm::kSwiGlu},
    {.form = GluForm::kGeGlu},
    {.form = GluForm::kGeGluTanh},
    {.form = GluForm::kClampedSwiGlu, .alpha = 1.5f, .limit = 2},
};

TEST_P(TensorCoreTest, GatedFfnsHaveTheBitsOfTheCpu) {
  int number = 0;
  // Some outputs have an int8 form, and some do not.
  for (const Size& size :
       {Size{19, 96, 96}, Size{18, 45, 32}, Size{50, 160, 288}, Size{77, 33, 32}}) {
    const int64_t cols = WholeBlocks(GetParam(), size.cols);
    SCOPED_TRACE(absl::StrCat(size.rows, " rows, ", size.outputs, " outputs, ", cols));
    const Weight gate(GetParam(), size.outputs, cols, 7);
    const Weight up(GetParam(), size.outputs, cols, 8);
    const Activation x = Rows(size.rows, cols);
    const auto outputs = static_cast<size_t>(size.outputs);
    FfnWeights ffn = {.gate = gate.matrix(), .up = up.matrix(), .glu = kGlus[number % 4]};
    if (number++ % 2 == 0) {
      ffn.gate_bias = {Filled(1, size.outputs, 3).data, outputs};
      ffn.up_bias = {Filled(1, size.outputs, 4).data, outputs};
    }
    ASSERT_TRUE(UsesTensorCores(context_, ffn, size.rows));
    const ActivationBuffer actual = AllocateActivation(size.rows, size.outputs, Precision::kFast,
                                                       ActivationParts::kAll, &arena_);
    TensorCoreGlu(context_, x, ffn, actual);
    Finish();
    ExpectSameInt8(actual.View(), cpu_->MatMulGlu(x, ffn, &arena_));
    arena_.Reset();
  }
}

TEST_P(TensorCoreTest, HeadsHaveTheBitsOfTheCpu) {
  for (const int64_t rows : {16, 53}) {
    const int64_t cols = WholeBlocks(GetParam(), 64);
    std::vector<std::unique_ptr<Weight>> weights;
    std::vector<PackedMatrix> matrices;
    for (int head = 0; head < 3; ++head) {
      weights.push_back(std::make_unique<Weight>(GetParam(), 43, cols, head));
      matrices.push_back(weights.back()->matrix());
    }
    const Activation x = Rows(rows, 3 * cols);
    const MatrixView actual = Filled(rows, 3 * 43, 1);
    const MatrixView expected = Filled(rows, 3 * 43, 2);
    TensorCoreHeads(context_, x, matrices, actual);
    cpu_->MatMulHeads(x, matrices, expected);
    Finish();
    ExpectSameBits(actual, expected);
    arena_.Reset();
  }
}

// An expert of 96 inner and `hidden` outer columns.
struct Expert {
  Expert(DType dtype, int64_t hidden, uint64_t seed, absl::Span<const float> bias)
      : gate(dtype, kWidth, hidden, seed),
        up(dtype, kWidth, hidden, seed + 1),
        down(DType::kQ5_1, hidden, kWidth, seed + 2),
        ffn({.gate = gate.matrix(), .up = up.matrix(), .down = down.matrix()}) {
    if (bias.empty()) return;
    ffn.gate_bias = bias.subspan(0, kWidth);
    ffn.up_bias = bias.subspan(5, kWidth);
    ffn.down_bias = bias.subspan(0, hidden);
  }
  static constexpr int64_t kWidth = 96;

  Weight gate, up, down;
  FfnWeights ffn;
};

TEST_P(TensorCoreTest, GroupsHaveTheBitsOfTheCpu) {
  const int64_t hidden = WholeBlocks(GetParam(), 64);
  for (const int64_t rows : {40, 90}) {
    const Activation x = Rows(rows, hidden);
    const MatrixView bias = Filled(1, hidden + Expert::kWidth, 3);
    std::vector<std::unique_ptr<Expert>> experts;
    std::vector<std::vector<int32_t>> ids(3);
    std::vector<std::vector<int32_t>> out_ids(3);
    std::vector<ExpertGroup> groups;
    int32_t out_row = 0;
    for (int e = 0; e < 3; ++e) {
      experts.push_back(std::make_unique<Expert>(
          GetParam(), hidden, 10 * e,
          e == 1 ? absl::Span<const float>()
                 : absl::MakeConstSpan(bias.data, static_cast<size_t>(bias.cols))));
      // The group of expert 1 is empty. The output rows of each other group are in reverse order.
      for (int32_t row = e == 1 ? 0 : static_cast<int32_t>(rows); row > 0; --row) {
        if (row % 7 == e) continue;
        ids[e].push_back(row - 1);
        out_ids[e].push_back(out_row++);
      }
      std::reverse(out_ids[e].begin(), out_ids[e].end());
      groups.push_back({&experts.back()->ffn, ids[e], out_ids[e]});
    }
    ASSERT_TRUE(UsesTensorCores(context_, groups));
    const MatrixView actual = Filled(out_row, hidden, 1);
    const MatrixView expected = Filled(out_row, hidden, 2);
    TensorCoreGroups(context_, x, groups, actual, &arena_);
    Finish();
    cpu_->GroupedFfn(x, groups, expected, &arena_);
    ExpectSameBits(actual, expected);
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
