#include "moe/expert_record.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/packed_matrix.h"
#include "kernels/tensor.h"

namespace tidepool::moe {
namespace {

using kernels::DType;
using kernels::FfnWeights;

constexpr int64_t kWidth = 40;
constexpr int64_t kHidden = 23;

FfnWeights Shapes() {
  return {{DType::kF32, kWidth, kHidden},
          {DType::kF16, kWidth, kHidden},
          {DType::kF32, kHidden, kWidth}};
}

// Returns weights with biases, of which only the sizes are used.
FfnWeights BiasedShapes() {
  static const std::vector<float> values(kWidth, 1);
  const absl::Span<const float> all = values;
  FfnWeights shapes = Shapes();
  shapes.gate_bias = all;
  shapes.up_bias = all;
  shapes.down_bias = all.subspan(0, kHidden);
  return shapes;
}

// Returns the byte ranges of a record's parts, counted from its start.
std::vector<std::pair<int64_t, int64_t>> Parts(const FfnWeights& weights, const std::byte* record) {
  std::vector<std::pair<int64_t, int64_t>> parts;
  for (const kernels::PackedMatrix& matrix : {weights.gate, weights.up, weights.down}) {
    const auto bytes = static_cast<int64_t>(PackedBytes(matrix.dtype, matrix.rows, matrix.cols));
    parts.emplace_back(matrix.data - record, matrix.data - record + bytes);
  }
  for (const absl::Span<const float> bias :
       {weights.gate_bias, weights.up_bias, weights.down_bias}) {
    if (bias.empty()) continue;
    const int64_t begin = reinterpret_cast<const std::byte*>(bias.data()) - record;
    parts.emplace_back(begin, begin + static_cast<int64_t>(bias.size() * sizeof(float)));
  }
  return parts;
}

TEST(ExpertLayoutTest, PartsAreAlignedAndDoNotOverlap) {
  for (const FfnWeights& shapes : {Shapes(), BiasedShapes()}) {
    const ExpertLayout layout(shapes);
    EXPECT_EQ(layout.bytes() % kRecordAlignment, 0);
    const kernels::Buffer record(layout.bytes());
    const auto parts = Parts(layout.At(record.data()), record.data());
    EXPECT_EQ(parts.size(), shapes.gate_bias.empty() ? size_t{3} : size_t{6});
    int64_t end = 0;
    for (const auto& part : parts) {
      EXPECT_EQ(part.first % static_cast<int64_t>(kernels::kAlignment), 0);
      EXPECT_GE(part.first, end);
      end = part.second;
    }
    EXPECT_LE(end, layout.bytes());
    EXPECT_LT(layout.bytes() - end, kRecordAlignment);
  }
}

TEST(ExpertLayoutTest, BiasesAreWrittenInPlace) {
  const ExpertLayout layout(BiasedShapes());
  kernels::Buffer record(layout.bytes());
  const ExpertBiases places = layout.BiasesAt(record.data());
  ASSERT_EQ(static_cast<int64_t>(places.gate.size()), kWidth);
  ASSERT_EQ(static_cast<int64_t>(places.up.size()), kWidth);
  ASSERT_EQ(static_cast<int64_t>(places.down.size()), kHidden);
  std::fill(places.gate.begin(), places.gate.end(), 1.5f);
  std::fill(places.up.begin(), places.up.end(), 2.5f);
  std::fill(places.down.begin(), places.down.end(), 3.5f);
  const FfnWeights weights = layout.At(record.data());
  EXPECT_EQ(weights.gate_bias, absl::MakeConstSpan(std::vector<float>(kWidth, 1.5f)));
  EXPECT_EQ(weights.up_bias, absl::MakeConstSpan(std::vector<float>(kWidth, 2.5f)));
  EXPECT_EQ(weights.down_bias, absl::MakeConstSpan(std::vector<float>(kHidden, 3.5f)));
}

TEST(ExpertLayoutTest, ShapesHaveNoDataButKeepTheForm) {
  FfnWeights shapes = BiasedShapes();
  shapes.glu = {.form = kernels::GluForm::kClampedSwiGlu, .limit = 5};
  const ExpertLayout layout(shapes);
  EXPECT_EQ(layout.shapes().gate.data, nullptr);
  EXPECT_EQ(layout.shapes().gate_bias.data(), nullptr);
  EXPECT_EQ(static_cast<int64_t>(layout.shapes().gate_bias.size()), kWidth);
  const kernels::Buffer record(layout.bytes());
  EXPECT_EQ(layout.At(record.data()).glu.form, kernels::GluForm::kClampedSwiGlu);
  EXPECT_EQ(layout.At(record.data()).glu.limit, 5);
}

TEST(ExpertLayoutTest, WithoutBiasesTheRecordHasOnlyMatrices) {
  const ExpertLayout layout(Shapes());
  kernels::Buffer record(layout.bytes());
  EXPECT_TRUE(layout.At(record.data()).gate_bias.empty());
  EXPECT_TRUE(layout.BiasesAt(record.data()).down.empty());
  EXPECT_LE(layout.bytes(), ExpertLayout(BiasedShapes()).bytes());
}

}  // namespace
}  // namespace tidepool::moe
