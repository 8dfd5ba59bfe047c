// libFuzzer target: any bytes as a safetensors file, and as the index of a file in shards. A file
// that parses is read completely, and its tensors get the names of a model's tensors.
//
//   CC=clang bazel run --config=fuzz //tests/fuzz:hf_safetensors_fuzz -- -max_total_time=60
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/hf/families.h"
#include "engine/checkpoint/hf/safetensors.h"
#include "engine/checkpoint/hf/tensors.h"
#include "kernels/base/check.h"

namespace {

using namespace tidepool::engine;  // NOLINT

void CheckMessage(const absl::Status& status) {
  if (status.ok()) return;
  CHECK(!status.message().empty());
  CHECK(!absl::StrContains(status.message(), "\n"));
}

void Name(absl::string_view family, hf::Parts more, const hf::SafetensorsContents& contents,
          const std::byte* data) {
  hf::HfModel model;
  model.family = hf::FindHfFamily(family);
  model.parts = model.family->parts;
  model.parts.Add(more);
  model.head_dim = 4;
  model.key_dim = 2;
  model.value_dim = 2;
  model.heads = 2;
  model.kv_heads = 1;
  model.experts = {.count = 2, .hidden = 4, .width = 3};
  model.sparse = {true};
  model.recurrent = {!model.family->recurrent.empty()};
  model.delta = {.k_heads = 1, .v_heads = 2, .k_dim = 2, .v_dim = 2};
  model.conv_width = 2;
  model.tied = true;
  const std::string path = "fuzz";
  std::vector<hf::TensorSource> sources;
  for (const hf::StoredTensor& tensor : contents.tensors) {
    sources.push_back({&tensor, path, 0, data + tensor.file_offset});
  }
  const auto named = hf::NameTensors(path, model, sources);
  CheckMessage(named.status());
  if (!named.ok()) return;
  unsigned sum = 0;
  for (const GgufTensor& tensor : named->tensors) {
    CHECK_EQ(tensor.row_bytes() * tensor.rows(), tensor.bytes);
    std::vector<std::byte> bytes(tensor.row_bytes());
    for (int64_t row = 0; row < tensor.rows(); ++row) {
      tensor.CopyRows(row, 1, bytes.data());
      for (const std::byte byte : bytes) sum += static_cast<unsigned>(byte);
    }
  }
  CHECK(sum + 1 > 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  const auto contents = hf::ParseSafetensors("fuzz", absl::MakeConstSpan(bytes, size));
  CheckMessage(contents.status());
  if (contents.ok()) {
    Name("mixtral", {}, *contents, bytes);
    Name("granitemoeshared", {hf::Part::kGraniteShared}, *contents, bytes);
    Name("gpt_oss", {hf::Part::kGptOssExperts}, *contents, bytes);
    Name("gpt_oss", {hf::Part::kGptOssMxfp4}, *contents, bytes);
    Name("deepseek_v3", {hf::Part::kMlaQuery}, *contents, bytes);
    Name("qwen3_next", {hf::Part::kSharedExpert}, *contents, bytes);
    Name("qwen3_5_moe_text", {hf::Part::kSharedExpert}, *contents, bytes);
    Name("qwen3_vl_moe_text", {}, *contents, bytes);
    Name("lfm2_moe", {}, *contents, bytes);
  }
  CheckMessage(
      hf::ParseSafetensorsIndex("fuzz", {reinterpret_cast<const char*>(data), size}).status());
  return 0;
}
