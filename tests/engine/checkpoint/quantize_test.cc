#include "engine/checkpoint/quantize.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/checkpoint/dequantize.h"
#include "gtest/gtest.h"

namespace tidepool::engine {
namespace {

constexpr int kRows = 128;
constexpr int kColumns = 256;

std::vector<GgmlType> QuantizableTypes() {
  std::vector<GgmlType> types;
  for (uint32_t id = 0; id < 64; ++id) {
    const GgmlTypeInfo* info = FindGgmlType(id);
    if (info != nullptr && CanQuantize(info->type)) types.push_back(info->type);
  }
  return types;
}

std::vector<std::byte> Blocks(GgmlType type, const std::vector<float>& x) {
  const GgmlTypeInfo& info = TypeInfo(type);
  std::vector<std::byte> blocks(x.size() / info.block_elements * info.block_bytes);
  Quantize(type, x, blocks.data());
  return blocks;
}

std::vector<float> RoundTrip(GgmlType type, const std::vector<float>& x) {
  std::vector<float> values(x.size());
  Dequantize(type, Blocks(type, x).data(), absl::MakeSpan(values));
  return values;
}

double RmsError(GgmlType type, const std::vector<float>& x) {
  const std::vector<float> values = RoundTrip(type, x);
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += std::pow(double{values[i]} - x[i], 2);
  return std::sqrt(sum / static_cast<double>(x.size()));
}

// Computes the same data as make_quantize_golden.py.
uint64_t Mixed(uint64_t index) {
  uint64_t z = index * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

std::map<std::string, std::vector<float>> GoldenData() {
  std::map<std::string, std::vector<float>> data;
  for (int i = 0; i < kRows * kColumns; ++i) {
    const uint64_t z = Mixed(i);
    int sum = -131070;
    for (int shift = 0; shift < 64; shift += 16) sum += static_cast<int>(z >> shift & 0xFFFF);
    const float x = static_cast<float>(sum);
    data["bell"].push_back(x * 0x1p-20f);
    data["tails"].push_back(x * std::abs(x) * 0x1p-36f);
    data["shifted"].push_back((x + 60000) * 0x1p-20f);
  }
  return data;
}

TEST(QuantizeTest, ErrorIsNoLargerThanTheReferences) {
  const std::map<std::string, std::vector<float>> data = GoldenData();
  std::ifstream golden("tests/engine/checkpoint/quantize_golden.txt");
  std::string name, kind;
  double reference = 0;
  std::set<std::string> seen;
  while (golden >> name >> kind >> reference) {
    for (const GgmlType type : QuantizableTypes()) {
      if (GgmlTypeName(type) != name) continue;
      // The reference is written with ten digits.
      EXPECT_LE(RmsError(type, data.at(kind)), reference * (1 + 1e-6)) << name << " " << kind;
      seen.insert(name);
    }
  }
  // The file has every type except the float types.
  EXPECT_EQ(seen.size(), QuantizableTypes().size() - 3);
}

TEST(QuantizeTest, EvenLevelsComeBackNearlyAsTheyWere) {
  // The values are codes, times a scale that float16 can represent. In every 16 elements, the codes
  // reach both ends of their range.
  for (const GgmlType type : QuantizableTypes()) {
    std::vector<float> x(kColumns);
    for (int i = 0; i < kColumns; ++i) {
      const int codes[] = {-4, -3, -2, -1, 0, 1, 2, 3};
      x[i] = static_cast<float>(codes[(i * 5 + i / 16) % 8]) * 0x1p-6f;
    }
    if (type == GgmlType::kIQ4_NL) continue;  // its values are not evenly spaced
    const std::vector<float> values = RoundTrip(type, x);
    // Other types have more than these eight levels, or have quantised scales, so they have a small
    // error.
    const bool is_float = TypeInfo(type).block_elements == 1;
    const double limit = is_float || type == GgmlType::kMXFP4 ? 0 : 0x1p-6 * 0.1;
    for (int i = 0; i < kColumns; ++i) {
      ASSERT_NEAR(values[i], x[i], limit) << GgmlTypeName(type) << " element " << i;
    }
  }
}

TEST(QuantizeTest, ZerosConstantsAndExtremesStayFinite) {
  for (const GgmlType type : QuantizableTypes()) {
    const float largest = LargestQuantizable(type);
    const float tiny = std::numeric_limits<float>::denorm_min();
    for (const float value :
         {0.0f, -0.0f, 1.0f, -1.0f, 1e-30f, tiny, -tiny, 65504.0f, -65504.0f, largest, -largest}) {
      const std::vector<float> same = RoundTrip(type, std::vector<float>(kColumns, value));
      std::vector<float> alone(kColumns, 0.0f);
      alone[37] = value;
      const std::vector<float> spike = RoundTrip(type, alone);
      const float scale = std::max(std::abs(value), 0x1p-14f);
      // MXFP4 rounds to within a quarter of the value; the others are much closer.
      const float limit = type == GgmlType::kMXFP4 ? 0.26f * scale : 0.07f * scale;
      for (int i = 0; i < kColumns; ++i) {
        ASSERT_NEAR(same[i], value, limit) << GgmlTypeName(type) << " of " << value;
        ASSERT_NEAR(spike[i], alone[i], limit) << GgmlTypeName(type) << " of one " << value;
      }
    }
  }
}

// The minimum that fits these elements best is below the smallest element, outside of float16's
// range.
TEST(QuantizeTest, AMinimumPastTheLastFloat16StaysFinite) {
  for (const GgmlType type : QuantizableTypes()) {
    for (const float sign : {1.0f, -1.0f}) {
      std::vector<float> x(kColumns, sign * (-65504.0f + 55));
      for (int i = 0; i < kColumns; i += 32) {
        x[i] = sign * -65504.0f;
        x[i + 31] = sign * (-65504.0f + 1500);
      }
      const std::vector<float> values = RoundTrip(type, x);
      for (int i = 0; i < kColumns; ++i) {
        ASSERT_NEAR(values[i], x[i], 0.26f * 65504) << GgmlTypeName(type) << " " << i;
      }
    }
  }
}

TEST(QuantizeTest, FloatsRoundToNearest) {
  const std::vector<float> x = {1.0f + 0x1p-11f, 1.0f + 0x1.8p-11f, 0x1p-24f, -65504.0f};
  const std::vector<float> half = RoundTrip(GgmlType::kF16, x);
  EXPECT_EQ(half, (std::vector<float>{1.0f, 1.0f + 0x1p-10f, 0x1p-24f, -65504.0f}));
  EXPECT_EQ(RoundTrip(GgmlType::kF32, x), x);
  EXPECT_EQ(RoundTrip(GgmlType::kBF16, {1.0f + 0x1.8p-8f, 3e38f})[0], 1.0f + 0x1p-7f);
}

}  // namespace
}  // namespace tidepool::engine
