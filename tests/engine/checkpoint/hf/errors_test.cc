// Errors about Hugging Face directories name files, tensors, shapes and keys as the directory does.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/checkpoint/hf/json_file.h"
#include "engine/checkpoint/hf/safetensors.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/checkpoint/requantize.h"
#include "engine/checkpoint/weight_store.h"
#include "engine/model/model_config.h"
#include "engine/model/transformer_weights.h"
#include "gtest/gtest.h"
#include "kernels/base/check.h"
#include "tests/engine/checkpoint/hf/edit_config.h"

namespace tidepool::engine {
namespace {

namespace fs = std::filesystem;

std::string ReadAll(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  CHECK(file.good()) << path;
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

// A copy of a golden model that tests may change.
class Directory {
 public:
  explicit Directory(const std::string& model)
      : path_(fs::path(testing::TempDir()) / absl::StrCat("errors_", model)) {
    fs::remove_all(path_);
    fs::create_directories(path_);
    for (const auto& entry : fs::directory_iterator("tests/golden/hf/" + model)) {
      Write(entry.path().filename(), ReadAll(entry.path()));
    }
  }
  ~Directory() { fs::remove_all(path_); }

  const fs::path& path() const { return path_; }

  // Changes config.json as EditConfig does.
  void Edit(const std::string& edit) const {
    hf::Json config = hf::Json::parse(ReadAll(path_ / "config.json"));
    hf::EditConfig(edit, &config);
    Write("config.json", config.dump());
  }

  // Sets one element of a BF16 or F32 tensor to NaN.
  void PutNan(const std::string& tensor, int64_t index) const {
    for (const auto& entry : fs::directory_iterator(path_)) {
      if (entry.path().extension() != ".safetensors") continue;
      std::string bytes = ReadAll(entry.path());
      const auto contents = hf::ParseSafetensors(
          "model",
          absl::MakeConstSpan(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()));
      CHECK_OK(contents.status());
      for (const hf::StoredTensor& stored : contents->tensors) {
        if (stored.name != tensor) continue;
        const auto size = static_cast<int64_t>(TypeInfo(stored.type).block_bytes);
        // All bits set is a NaN in both types.
        bytes.replace(stored.file_offset + index * size, size, std::string(size, '\xff'));
        Write(entry.path().filename(), bytes);
        return;
      }
    }
    FAIL() << "no tensor " << tensor;
  }

  // Loads the model and returns the error without the path of the directory.
  std::string Error() const {
    return std::string(absl::StripPrefix(std::string(Load().message()), path_.string() + "/"));
  }

 private:
  absl::Status Load() const {
    auto file = OpenCheckpoint(path_.string());
    if (!file.ok()) return file.status();
    const auto config = ModelConfig::Parse(*file);
    if (!config.ok()) return config.status();
    auto store = WeightStore::Create(*std::move(file), {.threads = 1});
    if (!store.ok()) return store.status();
    return LoadTransformerWeights(*config, store->get(), nullptr, ExpertLoading::kPacked).status();
  }

  void Write(const fs::path& name, const std::string& bytes) const {
    // Create a new file, because a mapped file must not change.
    fs::remove(path_ / name);
    std::ofstream(path_ / name, std::ios::binary) << bytes;
  }

  const fs::path path_;
};

struct Row {
  const char* model;
  const char* edit;
  const char* error;
};

TEST(HfErrors, ShapesAreThoseOfTheFile) {
  const Row rows[] = {
      {"llama_f32", R"({"intermediate_size": 57})",
       "model.safetensors: model.layers.0.mlp.down_proj.weight: shape [30, 56], expected [30, 57]"},
      {"llama_f32", R"({"num_attention_heads": 10, "num_key_value_heads": 1, "head_dim": 6})",
       "model.safetensors: model.layers.0.self_attn.q_proj.weight: shape [30, 30], expected [60, "
       "30]"},
      {"qwen3_moe_bf16", R"({"moe_intermediate_size": 26})",
       "mlp.experts.0.gate_proj.weight: shape [24, 50], expected [26, 50]"},
      {"granitemoe", R"({"intermediate_size": 14})",
       "model.layers.0.block_sparse_moe.input_linear.weight: shape [6, 24, 40], expected [6, 28, "
       "40]"},
      {"granitemoe", R"({"num_local_experts": 8})", "shape [6, 40], expected [8, 40]"},
      {"qwen3_vl_moe", R"({"text_config.moe_intermediate_size": 14})",
       "model.safetensors: model.language_model.layers.0.mlp.experts.down_proj: shape [6, 12, 40], "
       "expected [6, 14, 40] or [6, 40, 14]"},
      {"qwen3_vl_moe_saved", R"({"text_config.num_local_experts": 8})",
       "model.language_model.layers.1.mlp.experts.down_proj: shape [6, 24, 12], expected [8, 12, "
       "24] or [8, 24, 12]"},
      {"gpt_oss_bf16", R"({"intermediate_size": 22})",
       "model.layers.0.mlp.experts.gate_up_proj: shape [6, 36, 40], expected [6, 36, 44]"},
      {"gpt_oss_mxfp4", R"({"intermediate_size": 64})",
       "model.layers.0.mlp.experts.gate_up_proj_blocks: shape [6, 64, 2, 16], expected [6, 128, 2, "
       "16]"},
      {"deepseek_v3", R"({"q_lora_rank": 22})",
       "model.layers.0.self_attn.q_a_proj.weight: shape [20, 40], expected [22, 40]"},
      {"gemma3_vision", R"({})", ""},
  };
  for (const Row& row : rows) {
    const Directory directory(row.model);
    directory.Edit(row.edit);
    const std::string error = directory.Error();
    const bool expected = *row.error == '\0' ? error.empty() : absl::StrContains(error, row.error);
    EXPECT_TRUE(expected) << row.model << " " << row.edit << ": " << error;
  }
}

TEST(HfErrors, KeysAreThoseOfConfigJson) {
  const Row rows[] = {
      {"deepseek_v3", R"({"num_experts_per_tok": 5})",
       "config.json: num_experts_per_tok: 5, expected at most 4, the experts of 2 groups"},
      {"granite", R"({"logits_scaling": 1e9})", "config.json: logits_scaling: 1"},
      {"llama_yarn_f16", R"({"rope_parameters": {"rope_type": "linear", "factor": 1e-9}})",
       "config.json: rope_parameters.factor: "},
      {"llama_yarn_f16",
       R"({"rope_parameters": null, "rope_scaling": {"rope_type": "linear", "factor": 1e-9}})",
       "config.json: rope_scaling.factor: "},
      {"llama3_rope_bf16",
       R"({"rope_parameters": {"rope_type": "llama3", "factor": 1e-9, "low_freq_factor": 1.0,
           "high_freq_factor": 4.0, "original_max_position_embeddings": 16}})",
       "config.json: rope_parameters.factor: holds "},
  };
  for (const Row& row : rows) {
    const Directory directory(row.model);
    directory.Edit(row.edit);
    EXPECT_TRUE(absl::StartsWith(directory.Error(), row.error))
        << row.model << " " << row.edit << ": " << directory.Error();
  }
}

struct NanRow {
  const char* model;
  const char* tensor;
  int64_t index;
  const char* error;
};

TEST(HfErrors, RowsAreThoseOfTheFile) {
  const NanRow rows[] = {
      {"llama_f32", "model.layers.1.mlp.down_proj.weight", 7 * 56 + 3,
       "model.safetensors: model.layers.1.mlp.down_proj.weight: row 7 has a NaN or an infinity"},
      // In memory, the rows of the two halves of a head alternate.
      {"llama_f32", "model.layers.0.self_attn.q_proj.weight", int64_t{8} * 30,
       "model.safetensors: model.layers.0.self_attn.q_proj.weight: row 8 has a NaN"},
      {"llama_f32", "model.norm.weight", 3, "model.safetensors: model.norm.weight: has a NaN"},
      {"qwen3_moe_bf16", "model.layers.1.mlp.experts.4.up_proj.weight", int64_t{5} * 50,
       "mlp.experts.4.up_proj.weight: row 5 has a NaN"},
      {"granitemoe", "model.layers.1.block_sparse_moe.input_linear.weight", int64_t{24 + 15} * 40,
       "block_sparse_moe.input_linear.weight: row 39 has a NaN"},
      // The matrices of gpt-oss are transposed, so that the rows in memory are columns in the file.
      {"gpt_oss_bf16", "model.layers.0.mlp.experts.gate_up_proj", 50,
       "model.layers.0.mlp.experts.gate_up_proj: has a NaN"},
      {"qwen3_vl_moe", "model.language_model.layers.1.mlp.experts.gate_up_proj", 50,
       "model.language_model.layers.1.mlp.experts.gate_up_proj: has a NaN"},
      {"qwen3_vl_moe_saved", "model.language_model.layers.1.mlp.experts.gate_up_proj",
       int64_t{29} * 24,
       "model.language_model.layers.1.mlp.experts.gate_up_proj: row 29 has a NaN"},
      {"deepseek_v3", "model.layers.0.self_attn.kv_b_proj.weight", int64_t{13} * 24,
       "model.layers.0.self_attn.kv_b_proj.weight: row 13 has a NaN"},
  };
  for (const NanRow& row : rows) {
    const Directory directory(row.model);
    directory.PutNan(row.tensor, row.index);
    const std::string error = directory.Error();
    EXPECT_TRUE(absl::StrContains(error, row.error)) << row.model << ": " << error;
    const auto file = OpenCheckpoint(directory.path().string());
    ASSERT_TRUE(file.ok()) << file.status();
    const fs::path out = fs::path(testing::TempDir()) / "errors.gguf";
    const auto report = Requantize(*file, out.string(), {});
    EXPECT_TRUE(absl::StrContains(report.status().message(), row.tensor)) << report.status();
  }
}

// Every metadata key that describes the model has a name in config.json.
TEST(HfErrors, EveryKeyHasAName) {
  for (const auto& entry : fs::directory_iterator("tests/golden/hf")) {
    if (!entry.is_directory()) continue;
    const auto file = OpenCheckpoint(entry.path().string());
    ASSERT_TRUE(file.ok()) << file.status();
    const std::string prefix = absl::StrCat(*file->String("general.architecture"), ".");
    for (const GgufEntry& item : file->metadata()) {
      if (!absl::StartsWith(item.key, prefix)) continue;
      EXPECT_TRUE(absl::EndsWith(file->PlaceOf(item.key).path, "/config.json"))
          << entry.path() << ": " << item.key;
    }
    for (const GgufTensor& tensor : file->tensors()) {
      EXPECT_NE(file->PlaceOf(tensor.name).path, entry.path().string()) << tensor.name;
    }
  }
}

}  // namespace
}  // namespace tidepool::engine
