// Which checkpoints the loader accepts, and how it refuses the others.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/engine/model/gguf_edit.h"
#include "tests/engine/model/golden_data.h"

namespace tidepool::engine {
namespace {

constexpr char kLlama[] = "tests/golden/tiny/llama_f32.gguf";
constexpr char kLlama3[] = "tests/golden/tiny/llama3_rope_f16.gguf";
constexpr char kQwen2[] = "tests/golden/tiny/qwen2_f32.gguf";
constexpr char kMixtral[] = "tests/golden/tiny/mixtral_q4_0.gguf";
constexpr char kQwen2Moe[] = "tests/golden/tiny/qwen2moe_f32.gguf";
constexpr char kQwen3[] = "tests/golden/tiny/qwen3_f32.gguf";

std::vector<float> Logits(const std::string& path) {
  const std::vector<int32_t> ids = {65, 1, 200, 33, 90, 17, 64};
  return AllLogits(Load(path, {}).model.get(), ids, 512);
}

// Returns the status of loading, which must not be OK.
absl::Status Refusal(const std::string& path) {
  auto file = GgufFile::Open(path);
  EXPECT_TRUE(file.ok()) << file.status();
  const auto config = ModelConfig::Parse(*file);
  EXPECT_TRUE(config.ok()) << config.status();
  const auto store = WeightStore::Create(*std::move(file), {.threads = 1});
  const auto backend = kernels::MakeCpuBackend({});
  return TransformerModel::Create(*config, store->get(), backend->get(), {}).status();
}

void ExpectRefusal(const std::string& path, const std::vector<std::string>& words) {
  const absl::Status status = Refusal(path);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  for (const std::string& word : words) {
    EXPECT_TRUE(absl::StrContains(status.message(), word)) << status << "\nlacks: " << word;
  }
  EXPECT_FALSE(absl::StrContains(status.message(), "\n")) << status;
}

std::string Blk(int layer, const std::string& name) {
  return absl::StrCat("blk.", layer, ".", name);
}

TEST(TransformerWeightsTest, TheRewrittenFileIsTheSameModel) {
  EXPECT_EQ(Logits(GgufEdit(kLlama).Write("same.gguf")), Logits(kLlama));
}

TEST(TransformerWeightsTest, FusedQkvWithBiasesIsTheSameModel) {
  GgufEdit edit(kQwen2);
  int layers = 0;
  for (; layers < 2; ++layers) {
    for (const std::string kind : {"weight", "bias"}) {
      EditableTensor fused = edit.Take(Blk(layers, "attn_q." + kind));
      for (const std::string part : {"attn_k.", "attn_v."}) {
        const EditableTensor more = edit.Take(Blk(layers, part + kind));
        fused.dims.back() += more.dims.back();
        fused.data += more.data;
      }
      fused.name = Blk(layers, "attn_qkv." + kind);
      edit.Add(std::move(fused));
    }
  }
  EXPECT_EQ(Logits(edit.Write("fused_qkv.gguf")), Logits(kQwen2));
}

TEST(TransformerWeightsTest, FusedGateAndUpExpertsAreTheSameModel) {
  GgufEdit edit(kMixtral);
  for (int layer = 0; layer < 2; ++layer) {
    const EditableTensor gate = edit.Take(Blk(layer, "ffn_gate_exps.weight"));
    const EditableTensor up = edit.Take(Blk(layer, "ffn_up_exps.weight"));
    const size_t slab = gate.data.size() / gate.dims[2];
    EditableTensor fused = {Blk(layer, "ffn_gate_up_exps.weight"), gate.type, gate.dims, ""};
    fused.dims[1] *= 2;
    for (uint64_t e = 0; e < gate.dims[2]; ++e) {
      fused.data += gate.data.substr(e * slab, slab) + up.data.substr(e * slab, slab);
    }
    edit.Add(std::move(fused));
  }
  EXPECT_EQ(Logits(edit.Write("gate_up.gguf")), Logits(kMixtral));
}

TEST(TransformerWeightsTest, OneTensorForEachExpertIsTheSameModel) {
  GgufEdit edit(kMixtral);
  for (int layer = 0; layer < 2; ++layer) {
    for (const std::string part : {"ffn_gate", "ffn_up", "ffn_down"}) {
      const EditableTensor all = edit.Take(Blk(layer, part + "_exps.weight"));
      const size_t slab = all.data.size() / all.dims[2];
      for (uint64_t e = 0; e < all.dims[2]; ++e) {
        edit.Add({Blk(layer, absl::StrCat(part, ".", e, ".weight")),
                  all.type,
                  {all.dims[0], all.dims[1]},
                  all.data.substr(e * slab, slab)});
      }
    }
  }
  EXPECT_EQ(Logits(edit.Write("single_experts.gguf")), Logits(kMixtral));
}

TEST(TransformerWeightsTest, RopeDivisorsOfOneChangeNothing) {
  GgufEdit edit(kLlama);
  const std::vector<float> ones(8, 1.0f);
  edit.Add({"rope_freqs.weight", GgmlType::kF32, {8}, BytesOf(ones)});
  EXPECT_EQ(Logits(edit.Write("ones.gguf")), Logits(kLlama));
}

TEST(TransformerWeightsTest, RopeDivisorsMatter) {
  GgufEdit edit(kLlama3);
  edit.Take("rope_freqs.weight");
  EXPECT_NE(Logits(edit.Write("no_divisors.gguf")), Logits(kLlama3));
}

TEST(TransformerWeightsTest, OutputBiasesAreAdded) {
  GgufEdit edit(kLlama);
  const std::vector<float> expected = Logits(kLlama);
  std::vector<float> bias(64, 0.0f);
  for (const std::string name : {"blk.0.attn_output.bias", "blk.1.ffn_down.bias"}) {
    edit.Add({name, GgmlType::kF32, {64}, BytesOf(bias)});
    EXPECT_EQ(Logits(edit.Write("zero_bias.gguf")), expected);
    for (int i = 0; i < 64; ++i) bias[i] = 0.25f * static_cast<float>(i % 3);
    edit.at(name).data = BytesOf(bias);
    EXPECT_NE(Logits(edit.Write("bias.gguf")), expected) << name;
    edit.Take(name);
    bias.assign(64, 0.0f);
  }
}

TEST(TransformerWeightsTest, ProgressRisesToOne) {
  auto file = GgufFile::Open(kMixtral);
  ASSERT_TRUE(file.ok());
  const auto config = ModelConfig::Parse(*file);
  const auto store = WeightStore::Create(*std::move(file), {.threads = 1});
  std::vector<double> fractions;
  ASSERT_TRUE(LoadTransformerWeights(
                  *config, store->get(), [&](double fraction) { fractions.push_back(fraction); },
                  ExpertLoading::kPacked)
                  .ok());
  ASSERT_EQ(fractions.size(), config->layers.size() + 1);
  EXPECT_TRUE(std::is_sorted(fractions.begin(), fractions.end()));
  EXPECT_GT(fractions.front(), 0);
  EXPECT_DOUBLE_EQ(fractions.back(), 1);
}

// Every tensor of these files is required, except an untied head and biases. (The embedding is left
// out: without it, the number of tokens is already missing.)
TEST(TransformerWeightsTest, AMissingTensorIsNamed) {
  for (const char* path : {kLlama, kQwen2, kQwen2Moe, kQwen3, kMixtral}) {
    const GgufEdit whole(path);
    for (const EditableTensor& tensor : whole.tensors()) {
      if (tensor.name == "output.weight" || tensor.name == "token_embd.weight" ||
          absl::EndsWith(tensor.name, ".bias")) {
        continue;
      }
      GgufEdit edit = whole;
      edit.Take(tensor.name);
      ExpectRefusal(edit.Write("missing.gguf"), {tensor.name, "missing", "missing.gguf"});
    }
  }
}

TEST(TransformerWeightsTest, ATensorOfAnotherShapeIsNamedWithBothShapes) {
  GgufEdit edit(kLlama);
  EditableTensor& down = edit.at("blk.1.ffn_down.weight");
  std::swap(down.dims[0], down.dims[1]);
  ExpectRefusal(edit.Write("shape.gguf"),
                {"blk.1.ffn_down.weight", down.dims[0] == 64 ? "{64, " : "64}", "expected {"});
}

TEST(TransformerWeightsTest, ATensorThatTheGraphWouldIgnoreIsNamed) {
  const std::vector<float> values(64, 1.0f);
  for (const std::string name :
       {"blk.0.attn_q_norm.weight", "blk.2.post_attention_norm.weight", "blk.0.attn_norm.bias",
        "output_norm.bias", "blk.3.attn_norm.weight"}) {
    GgufEdit edit(kLlama);
    edit.Add({name, GgmlType::kF32, {64}, BytesOf(values)});
    ExpectRefusal(edit.Write("unused.gguf"), {name, "does not use", "llama"});
  }
}

TEST(TransformerWeightsTest, ANanIsNamed) {
  GgufEdit edit(kLlama);
  edit.at("blk.0.attn_norm.weight").data.replace(8, 4, "\xff\xff\xff\x7f");
  ExpectRefusal(edit.Write("nan.gguf"), {"blk.0.attn_norm.weight", "NaN"});
}

TEST(TransformerWeightsTest, ARopeDivisorMustBeAboveZero) {
  GgufEdit edit(kLlama3);
  edit.at("rope_freqs.weight").data.replace(0, 4, std::string(4, '\0'));
  ExpectRefusal(edit.Write("zero_divisor.gguf"),
                {"rope_freqs.weight", "holds 0", "expected at least"});
}

}  // namespace
}  // namespace tidepool::engine
