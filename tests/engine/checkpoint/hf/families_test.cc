// Compares the tensors and metadata of Hugging Face directories with those that llama.cpp's
// converter writes for them. make_hf_gguf.py writes the reference to tests/golden/hf_gguf.json.
#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "engine/checkpoint/dequantize.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "gtest/gtest.h"
#include "kernels/base/check.h"
#include "nlohmann/json.hpp"

namespace tidepool::engine {
namespace {

using Json = nlohmann::json;

const Json& Reference() {
  static const auto* const kReference = [] {
    std::ifstream file("tests/golden/hf_gguf.json");
    CHECK(file.good());
    return new Json(Json::parse(file));
  }();
  return *kReference;
}

std::vector<std::string> Models() {
  std::vector<std::string> names;
  for (const auto& [name, _] : Reference().items()) names.push_back(name);
  return names;
}

// Returns zlib's CRC-32.
uint32_t Checksum(const std::vector<float>& values) {
  uint32_t crc = 0xFFFFFFFF;
  const auto* const bytes = reinterpret_cast<const uint8_t*>(values.data());
  for (size_t i = 0; i < values.size() * sizeof(float); ++i) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320 : 0);
  }
  return ~crc;
}

std::vector<float> Values(const GgufTensor& tensor) {
  std::vector<float> values(tensor.elements());
  std::vector<std::byte> bytes(tensor.row_bytes());
  for (int64_t row = 0; row < tensor.rows(); ++row) {
    tensor.CopyRows(row, 1, bytes.data());
    Dequantize(tensor.type, bytes.data(),
               absl::MakeSpan(values).subspan(row * tensor.dims[0], tensor.dims[0]));
  }
  return values;
}

bool Close(double a, double b) { return std::abs(a - b) <= 1e-6 * std::abs(b); }

// Returns whether a value of the metadata equals the reference's.
bool Equal(const Checkpoint& file, const std::string& key, const Json& expected) {
  if (expected.is_boolean()) return *file.Bool(key) == expected.get<bool>();
  if (expected.is_string()) return *file.String(key) == expected.get<std::string>();
  if (expected.is_number_integer()) return *file.Int(key) == expected.get<int64_t>();
  return Close(*file.Float(key), expected.get<double>());
}

class HfFamilyTest : public testing::TestWithParam<std::string> {
 protected:
  const Json& Golden() const { return Reference()[GetParam()]; }
  absl::StatusOr<Checkpoint> Open() const {
    return OpenCheckpoint("tests/golden/hf/" + GetParam());
  }
};

TEST_P(HfFamilyTest, TensorsEqualThoseOfTheConverter) {
  const auto file = Open();
  ASSERT_TRUE(file.ok()) << file.status();
  std::set<std::string> ours;
  for (const GgufTensor& tensor : file->tensors()) ours.emplace(tensor.name);
  for (const auto& [name, golden] : Golden()["tensors"].items()) {
    const GgufTensor* tensor = file->FindTensor(name);
    ASSERT_NE(tensor, nullptr) << name;
    ours.erase(name);
    // The converter computes this tensor for a context length that transformers ignores.
    if (name == "rope_freqs.weight") continue;
    auto dims = golden[0].get<std::vector<int64_t>>();
    dims.resize(4, 1);
    EXPECT_EQ(std::vector<int64_t>(tensor->dims.begin(), tensor->dims.end()), dims) << name;
    // -exp(A_log) differs in the last bit. hf_models_test compares its effect.
    if (absl::EndsWith(name, ".ssm_a")) continue;
    EXPECT_EQ(Checksum(Values(*tensor)), golden[1].get<uint32_t>()) << name;
  }
  EXPECT_TRUE(ours.empty()) << *ours.begin();
}

TEST_P(HfFamilyTest, MetadataEqualsThatOfTheConverter) {
  // The converter computes these values for published models only, or counts layers that are not
  // read.
  const std::set<std::string> other_values = {"hunyuan-moe.rope.freq_base", "glm4moe.block_count",
                                              "ernie4_5-moe.expert_shared_feed_forward_length"};
  // The loader leaves these keys out: other programs use them, or they have the default value.
  const std::set<std::string> left_out = {
      "rope.scaling.finetuned",      "expert_group_count",
      "expert_group_used_count",     "nextn_predict_layers",
      "rope.scaling.factor",         "rope.scaling.attn_factor",
      "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow",
      "rope.scaling.type",           "rope.scaling.yarn_log_multiplier",
      "leading_dense_block_count",   "rope.scaling.original_context_length",
      "attention.sliding_window",    "full_attention_interval"};
  const auto file = Open();
  ASSERT_TRUE(file.ok()) << file.status();
  const auto architecture = Golden()["architecture"].get<std::string>();
  EXPECT_EQ(*file->String("general.architecture"), architecture);
  for (const auto& [key, value] : Golden()["keys"].items()) {
    if (other_values.contains(key)) continue;
    if (!file->HasKey(key)) {
      EXPECT_TRUE(left_out.contains(key.substr(architecture.size() + 1))) << key << " " << value;
      continue;
    }
    if (value.is_array()) continue;
    EXPECT_TRUE(Equal(*file, key, value))
        << key << ": " << Checkpoint::FormatValue(*file->Find(key)) << ", expected " << value;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, HfFamilyTest, testing::ValuesIn(Models()),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace tidepool::engine
