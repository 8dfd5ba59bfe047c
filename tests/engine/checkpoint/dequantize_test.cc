#include "engine/checkpoint/dequantize.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"

namespace tidepool::engine {
namespace {

// Returns the type with this name. Fails the test if there is none.
GgmlType TypeNamed(const std::string& name) {
  for (uint32_t id = 0; id < 64; ++id) {
    const GgmlTypeInfo* info = FindGgmlType(id);
    if (info != nullptr && info->name == name) return info->type;
  }
  ADD_FAILURE() << "no type " << name;
  return GgmlType::kF32;
}

std::vector<float> DequantizeAll(GgmlType type, const std::string& bytes) {
  const GgmlTypeInfo& info = TypeInfo(type);
  EXPECT_EQ(bytes.size() % info.block_bytes, 0u);
  std::vector<float> values(bytes.size() / info.block_bytes * info.block_elements);
  Dequantize(type, reinterpret_cast<const std::byte*>(bytes.data()), absl::MakeSpan(values));
  return values;
}

TEST(Dequantize, AgreesWithTheReferenceBitForBit) {
  std::ifstream file("tests/engine/checkpoint/dequantize_vectors.txt");
  std::set<std::string> seen;
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name, block, expected;
    ASSERT_TRUE(words >> name >> block >> expected) << line;
    const std::vector<float> values = DequantizeAll(TypeNamed(name), absl::HexStringToBytes(block));
    ASSERT_EQ(values.size() * 8, expected.size()) << name;
    for (size_t i = 0; i < values.size(); ++i) {
      uint32_t bits;
      __builtin_memcpy(&bits, &values[i], sizeof(bits));
      const uint32_t want =
          static_cast<uint32_t>(std::stoul(expected.substr(8 * i, 8), nullptr, 16));
      ASSERT_EQ(bits, want) << name << " element " << i << " is " << values[i];
    }
    seen.insert(name);
  }
  // Checks that the file of vectors has every type that can be dequantised.
  for (uint32_t id = 0; id < 64; ++id) {
    const GgmlTypeInfo* info = FindGgmlType(id);
    if (info == nullptr) continue;
    EXPECT_EQ(CanDequantize(info->type), seen.count(std::string(info->name)) == 1) << info->name;
  }
}

// Blocks of bytes (73 i + 29) mod 256 with scale 1/8 and minimum 1/4, worked out by hand formulas
// that were checked against the format's own C code.
struct HandVector {
  GgmlType type;
  std::vector<int> scale_at;
  std::vector<int> minimum_at;
  float first, second, seventeenth, past_half, last;
  double sum, weighted_sum;
};

TEST(Dequantize, AgreesWithHandVectors) {
  const std::vector<HandVector> vectors = {
      {GgmlType::kQ4_0, {0}, {}, 0.875, 0, 0.875, 0.875, 0.875, 0.375, 20.875},
      {GgmlType::kQ4_1, {0}, {2}, 0.375, 1.5, 1.25, 1.25, 1.25, 38.625, 657},
      {GgmlType::kQ5_0, {0}, {}, 0.375, 1.5, -1.875, -1.875, 0.125, -1.125, -99.375},
      {GgmlType::kQ5_1, {0}, {2}, 2.875, 2, 3.5, 3.5, 1.5, 65.125, 1119.75},
      {GgmlType::kQ8_0, {0}, {}, -10.125, -1, -15, -15, -15.25, -54, -878},
      {GgmlType::kQ2_K, {80}, {82}, 1.375, 3, 0, -0.25, -0.5, -123.25, -21304.875},
      {GgmlType::kQ3_K, {108}, {}, -0.375, 0.75, -1.5, 6.25, 0, 72.875, 13293.5},
      {GgmlType::kQ4_K, {0}, {2}, -7.625, -8.5, -8.5, 12.75, 1.5, 3207, 567226},
      {GgmlType::kQ5_K, {0}, {2}, -5.625, -8.5, -8.5, 62.75, 2.5, 8745, 1415974},
      {GgmlType::kQ6_K, {208}, {}, 13.125, -26.25, 28.5, 27.75, 22.5, 1816.5, 271759},
      {GgmlType::kIQ4_NL, {0}, {}, 14.125, 0.125, 14.125, 14.125, 14.125, 13.75, 458.625},
      {GgmlType::kIQ4_XS,
       {0},
       {},
       -74.375,
       189.125,
       53.125,
       -322.625,
       27.625,
       -2491.5,
       -480230.875},
      {GgmlType::kMXFP4, {}, {}, 2, -3, -0.5, -0.5, -0.5, -2, -44.75},
      {GgmlType::kNVFP4, {}, {}, 0.5, -1, 2, -0.5, 0, -15, -496.5},
  };
  for (const HandVector& vector : vectors) {
    std::string block(TypeInfo(vector.type).block_bytes, '\0');
    for (size_t i = 0; i < block.size(); ++i) block[i] = static_cast<char>((73 * i + 29) % 256);
    for (const int at : vector.scale_at) block.replace(at, 2, std::string("\x00\x30", 2));
    for (const int at : vector.minimum_at) block.replace(at, 2, std::string("\x00\x34", 2));
    if (vector.type == GgmlType::kMXFP4) block[0] = 126;
    if (vector.type == GgmlType::kNVFP4) block.replace(0, 4, std::string("\x38\x40\x30\x00", 4));

    const std::vector<float> x = DequantizeAll(vector.type, block);
    double sum = 0;
    double weighted_sum = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      sum += x[i];
      weighted_sum += x[i] * static_cast<double>(i + 1);
    }
    const absl::string_view name = GgmlTypeName(vector.type);
    EXPECT_EQ(x[0], vector.first) << name;
    EXPECT_EQ(x[1], vector.second) << name;
    EXPECT_EQ(x[17], vector.seventeenth) << name;
    EXPECT_EQ(x[x.size() / 2 + 1], vector.past_half) << name;
    EXPECT_EQ(x.back(), vector.last) << name;
    EXPECT_EQ(sum, vector.sum) << name;
    EXPECT_EQ(weighted_sum, vector.weighted_sum) << name;
  }
}

TEST(Dequantize, ActivationsAndUnsupportedTypesCannot) {
  for (const GgmlType type : {GgmlType::kQ8_1, GgmlType::kQ8_K, GgmlType::kIQ2_XXS,
                              GgmlType::kIQ1_M, GgmlType::kTQ1_0, GgmlType::kQ1_0}) {
    EXPECT_FALSE(CanDequantize(type)) << GgmlTypeName(type);
  }
}

}  // namespace
}  // namespace tidepool::engine
