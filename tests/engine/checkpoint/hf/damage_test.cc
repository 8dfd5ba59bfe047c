// Loads damaged Hugging Face directories. Each file is damaged with 200 seeds, and some files have
// hand-written faults. A load either succeeds or returns a one-line error. The status code of the
// error makes the program exit with 2.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/checkpoint/weight_store.h"
#include "engine/model/model_config.h"
#include "engine/model/transformer_weights.h"
#include "engine/tokenizer/load_tokenizer.h"
#include "gtest/gtest.h"
#include "kernels/base/check.h"

namespace tidepool::engine {
namespace {

namespace fs = std::filesystem;

constexpr int kSeeds = 200;

std::string ReadAll(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  CHECK(file.good()) << path;
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

void WriteAll(const fs::path& path, const std::string& bytes) {
  // Create a new file, because a mapped file must not change.
  fs::remove(path);
  std::ofstream(path, std::ios::binary) << bytes;
}

// Returns the bytes of a field of a protobuf message.
std::string Bytes(int number, const std::string& bytes) {
  CHECK(bytes.size() < 128);
  return std::string({static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())}) + bytes;
}

std::string Number(int number, int value) {
  return {static_cast<char>(number << 3), static_cast<char>(value)};
}

// Returns a tokenizer.model of 275 pieces: special tokens, bytes and letters.
std::string SentencePieceModel() {
  constexpr int kUnknown = 2;
  constexpr int kControl = 3;
  constexpr int kByte = 6;
  std::string model;
  const auto add = [&model](const std::string& text, int type) {
    model += Bytes(1, Bytes(1, text) + Number(3, type));
  };
  add("<unk>", kUnknown);
  add("<s>", kControl);
  add("</s>", kControl);
  for (int byte = 0; byte < 256; ++byte) add(absl::StrFormat("<0x%02X>", byte), kByte);
  for (char letter = 'a'; letter < 'a' + 16; ++letter) add(std::string(1, letter), 1);
  return model + Bytes(2, Number(3, 2));  // model_type: BPE
}

// A copy of a golden model that tests may damage.
class Directory {
 public:
  explicit Directory(const std::string& model)
      : path_(fs::path(testing::TempDir()) / absl::StrCat("damaged_", model)) {
    fs::remove_all(path_);
    fs::create_directories(path_);
    for (const auto& entry : fs::directory_iterator("tests/golden/hf/" + model)) {
      WriteAll(path_ / entry.path().filename(), ReadAll(entry.path()));
    }
  }
  // Puts a SentencePiece model in the place of tokenizer.json.
  void UseSentencePiece() const {
    fs::remove(path_ / "tokenizer.json");
    // This file names tokens that the model does not have.
    fs::remove(path_ / "tokenizer_config.json");
    WriteAll(path_ / "tokenizer.model", SentencePieceModel());
  }
  ~Directory() { fs::remove_all(path_); }

  fs::path File(const std::string& name) const { return path_ / name; }

  // Loads everything that the start of a model loads.
  absl::Status Load() const {
    auto file = OpenCheckpoint(path_.string());
    if (!file.ok()) return file.status();
    const auto config = ModelConfig::Parse(*file);
    if (!config.ok()) return config.status();
    const auto tokenizer = LoadTokenizer(*file);
    if (!tokenizer.ok()) return tokenizer.status();
    EXPECT_EQ(file->SampledDigest().size(), 32u);
    auto store = WeightStore::Create(*std::move(file), {.threads = 1});
    if (!store.ok()) return store.status();
    return LoadTransformerWeights(*config, store->get(), nullptr, ExpertLoading::kPacked).status();
  }

 private:
  const fs::path path_;
};

bool MeansExitCode2(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnimplemented:
      return true;
    default:
      return false;
  }
}

// Applies one of six kinds of damage at random positions.
std::string Damaged(std::string bytes, uint32_t seed, size_t reach) {
  std::mt19937 random(seed);
  const auto below = [&random](size_t limit) { return random() % std::max<size_t>(limit, 1); };
  const size_t size = std::min(bytes.size(), reach);
  switch (random() % 6) {
    case 0:
      bytes.resize(below(bytes.size()));
      break;
    case 1:
      for (int i = 0; i < 3; ++i) bytes[below(size)] = static_cast<char>(random());
      break;
    case 2:
      bytes.erase(below(size), 1 + below(20));
      break;
    case 3:
      bytes.insert(below(size), bytes.substr(below(size), 1 + below(30)));
      break;
    case 4: {
      const size_t at = below(size);
      bytes.replace(at, std::min<size_t>(8, bytes.size() - at), 8, '\xFF');
      break;
    }
    default: {
      // Change one digit. The result is usually still a valid number.
      size_t at = below(size);
      while (at < size && (bytes[at] < '0' || bytes[at] > '9')) ++at;
      if (at < size) bytes[at] = static_cast<char>('0' + random() % 10);
      break;
    }
  }
  return bytes;
}

struct Victim {
  const char* name;
  const char* model;
  const char* file;
  size_t reach;  // damage only this many bytes at the start of the file
};

class DamageTest : public testing::TestWithParam<Victim> {};

TEST_P(DamageTest, EverySeedIsRefusedInOneLineOrHarmless) {
  const Victim victim = GetParam();
  const Directory directory(victim.model);
  if (std::string(victim.file) == "tokenizer.model") directory.UseSentencePiece();
  ASSERT_TRUE(directory.Load().ok()) << directory.Load();
  const std::string sound = ReadAll(directory.File(victim.file));
  int refused = 0;
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    WriteAll(directory.File(victim.file), Damaged(sound, seed, victim.reach));
    const absl::Status status = directory.Load();
    if (status.ok()) continue;
    ++refused;
    const std::string message(status.message());
    EXPECT_TRUE(MeansExitCode2(status)) << seed << ": " << status;
    EXPECT_TRUE(absl::StrContains(message, "damaged_")) << seed << ": " << message;
    EXPECT_EQ(std::count_if(message.begin(), message.end(),
                            [](unsigned char c) { return c < 0x20 || c == 0x7F; }),
              0)
        << seed << ": " << message;
    EXPECT_LT(message.size(), 1500u) << seed;
  }
  EXPECT_GT(refused, kSeeds / 3);
}

INSTANTIATE_TEST_SUITE_P(
    Files, DamageTest,
    testing::Values(Victim{"Safetensors", "qwen2_moe_bf16", "model.safetensors", 7000},
                    Victim{"Index", "qwen3_moe_bf16", "model.safetensors.index.json", 1 << 20},
                    Victim{"Config", "qwen2_moe_bf16", "config.json", 1 << 20},
                    Victim{"DeltaNets", "qwen3_5", "model.safetensors", 9000},
                    Victim{"FusedDeltaNets", "qwen3_next", "model.safetensors", 14000},
                    Victim{"DeltaNetConfig", "qwen3_5_text", "config.json", 1 << 20},
                    Victim{"ShortConvConfig", "lfm2", "config.json", 1 << 20},
                    Victim{"GenerationConfig", "qwen3_bf16", "generation_config.json", 1 << 20},
                    Victim{"TokenizerConfig", "qwen2_f16", "tokenizer_config.json", 1 << 20},
                    Victim{"Tokenizer", "qwen3_bf16", "tokenizer.json", 1 << 20},
                    Victim{"SentencePiece", "qwen3_bf16", "tokenizer.model", 1 << 20}),
    [](const auto& one) { return std::string(one.param.name); });

struct Edit {
  const char* model;
  const char* file;
  const char* from;  // empty: remove the file
  const char* to;
  const char* complaint;
};

// Long because it is a table of cases.
TEST(HfDirectory, NamesTheFaultOfADirectory) {
  const Edit edits[] = {
      {"qwen3_bf16", "config.json", "", "", "config.json: missing"},
      {"qwen3_bf16", "model.safetensors", "", "", "model.safetensors: missing"},
      {"qwen2_f16", "model-00002-of-00002.safetensors", "", "",
       "model-00002-of-00002.safetensors: cannot be opened"},
      {"qwen3_bf16", "config.json", "\"qwen3\"", "\"gemma7\"", "model_type: \"gemma7\""},
      {"qwen3_bf16", "config.json", "\"silu\"", "\"gelu\"", "hidden_act: \"gelu\""},
      {"llama_f32", "config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3",
       "model.layers.2.input_layernorm.weight: missing"},
      {"llama_f32", "config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1",
       "model.layers.1.input_layernorm.weight: a tensor that"},
      {"qwen3_bf16", "config.json", "\"num_attention_heads\": 5", "\"num_attention_heads\": 0",
       "num_attention_heads: 0, expected an integer of 1 to"},
      {"qwen3_bf16", "config.json", "\"vocab_size\": 275", "\"vocab_size\": 276",
       "vocab_size: 276"},
      {"qwen3_bf16", "config.json", "\"use_cache\": true", "\"logit_softcap\": 30.0",
       "logit_softcap: 30.0 is not understood"},
      {"qwen3_bf16", "tokenizer_config.json", "{", "{\"chat_template\": 7, ", "chat_template: 7"},
      {"llama_bias", "config.json", "\"mlp_bias\": true", "\"mlp_bias\": false",
       "mlp.down_proj.bias: a tensor that"},
      {"deepseek_v3", "config.json", "\"rope_interleave\": true", "\"rope_interleave\": false",
       "rope_interleave: false is not supported"},
      {"deepseek_v3", "config.json", "\"mscale\": 1.0", "\"mscale\": \"one\"",
       "mscale: \"one\", expected a finite number"},
      {"deepseek_v2", "config.json", "\"n_group\": 3", "\"n_group\": 4", "n_group: 4"},
      {"gpt_oss_mxfp4", "config.json", "\"mxfp4\"", "\"fp8\"", "quantization_config: "},
      {"gpt_oss_mxfp4", "config.json", "\"swiglu_limit\": 7.0", "\"swiglu_limit\": 6.0",
       "swiglu_limit: 6.0 is not supported"},
      {"gemma2", "config.json", "\"gelu_pytorch_tanh\"", "\"gelu\"", "hidden_activation: \"gelu\""},
      {"granite", "config.json", "\"logits_scaling\": 0.7", "\"logits_scaling\": 0",
       "logits_scaling: 0"},
      {"phi3", "config.json", "\"partial_rotary_factor\": 1.0", "\"partial_rotary_factor\": 0.4",
       "partial_rotary_factor: 0.4"},
      {"phi3_longrope_long", "config.json", "1.7,", "1.7, 2.0,", "long_factor: "},
      {"qwen3_bf16", "config.json", "\"attention_bias\": false", "\"attention_bias\": true",
       "self_attn.q_proj.bias: missing"},
      {"llama_f32", "config.json", "\"attention_bias\": true", "\"attention_bias\": false",
       "self_attn.k_proj.bias: a tensor that"},
      {"llama_yarn_f16", "config.json", "\"yarn\"", "\"longrope\"", "long_factor: missing"},
      {"llama_yarn_f16", "config.json", "\"yarn\"", "\"ntk\"", "rope_type: \"ntk\""},
      {"qwen2_f16", "tokenizer_config.json", "\"chat_template\": \"",
       "\"chat_template\": 7, \"x\": \"", "chat_template: 7"},
      {"llama_yarn_f16", "config.json", "\"factor\": 4.0", "\"factor\": -4.0",
       "rope_parameters.factor: -4"},
      {"qwen2_f16", "model.safetensors.index.json", "model-00001-of-00002.safetensors",
       "../model-00001-of-00002.safetensors", "expected the name of a .safetensors file"},
      {"qwen3_bf16", "tokenizer.json", "\"type\": \"BPE\"", "\"type\": \"WordPiece\"",
       "model.type: \"WordPiece\""},
      {"qwen3_bf16", "tokenizer.json", "\"NFC\"", "\"Lowercase\"", "normalizer: "},
      {"llama_f32", "tokenizer.json", "{1,3}", "{1,4}", "pre_tokenizer: "},
      {"qwen3_5_text", "config.json", "\"linear_num_key_heads\": 2", "\"linear_num_key_heads\": 3",
       "linear_attn.conv1d.weight: shape [120, 1, 4], expected [144, 1, 4]"},
      {"qwen3_5_text", "config.json", "\"linear_conv_kernel_dim\": 4",
       "\"linear_conv_kernel_dim\": 3", "conv1d.weight: shape [120, 1, 4], expected [120, 1, 3]"},
      {"qwen3_next", "config.json", "\"linear_key_head_dim\": 10", "\"linear_key_head_dim\": 8",
       "shape ["},
      {"lfm2", "config.json", "\"conv\",", "\"full_attention\",",
       "model.layers.0.conv.conv.weight: a tensor that"},
  };
  for (const Edit& edit : edits) {
    const Directory directory(edit.model);
    const fs::path path = directory.File(edit.file);
    if (*edit.from == '\0') {
      fs::remove(path);
    } else {
      std::string text = ReadAll(path);
      const size_t at = text.find(edit.from);
      if (at == std::string::npos) {
        ASSERT_STREQ(edit.complaint, "") << edit.from;
        continue;
      }
      WriteAll(path, text.replace(at, std::string(edit.from).size(), edit.to));
    }
    const absl::Status status = directory.Load();
    EXPECT_TRUE(MeansExitCode2(status)) << edit.to << ": " << status;
    EXPECT_TRUE(absl::StrContains(status.message(), edit.complaint))
        << edit.complaint << ": " << status;
  }
}

}  // namespace
}  // namespace tidepool::engine
