// Changes keys in the config.json of small models, and checks the result: a value in the metadata,
// or an error. The expected values are those of transformers 5.23.
#include "engine/checkpoint/hf/config.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/checkpoint/gguf_file_writer.h"
#include "engine/checkpoint/gguf_parser.h"
#include "engine/checkpoint/hf/json_file.h"
#include "engine/checkpoint/hf/safetensors.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "gtest/gtest.h"
#include "kernels/base/check.h"
#include "tests/engine/checkpoint/hf/edit_config.h"

namespace tidepool::engine {
namespace {

using hf::Json;

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  CHECK(file.good()) << path;
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

// Returns the model's config.json with the keys of `edit`.
Json Edited(const std::string& model, const std::string& edit) {
  Json config = Json::parse(ReadAll("tests/golden/hf/" + model + "/config.json"));
  hf::EditConfig(edit, &config);
  return config;
}

// Returns the text of a key in the metadata, "none" if the key is missing, or the error.
std::string Read(const Json& config, const std::string& key) {
  GgufMetadata metadata;
  const auto model = hf::ReadConfig("config.json", config, &metadata);
  if (!model.ok()) return std::string(model.status().message());
  const std::string header = GgufHeader(metadata);
  const auto contents = ParseGguf(
      "header",
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(header.data()), header.size()));
  CHECK_OK(contents.status());
  for (const GgufEntry& entry : contents->entries) {
    if (entry.key == key) return Checkpoint::FormatValue(entry);
  }
  return "none";
}

struct Row {
  const char* model;
  const char* edit;
  const char* key;
  const char* expected;  // the text of the key, or the error
};

// Long because it is a table of cases.
TEST(HfConfig, TakesKeysAsTransformersDoes) {
  const Row rows[] = {
      // The layers that have a window.
      {"qwen3_moe_bf16",
       R"({"use_sliding_window": true, "sliding_window": 6, "max_window_layers": 1,
           "num_hidden_layers": 3})",
       "qwen3moe.attention.sliding_window_pattern", "bool[3] {true, true, true}"},
      {"qwen3_moe_bf16",
       R"({"use_sliding_window": true, "sliding_window": 6,
           "layer_types": ["full_attention", "sliding_attention"]})",
       "qwen3moe.attention.sliding_window_pattern", "bool[2] {true, true}"},
      {"qwen2_moe_bf16",
       R"({"use_sliding_window": true, "sliding_window": "remove", "layer_types": "remove",
           "max_window_layers": 4, "num_hidden_layers": 6})",
       "qwen2moe.attention.sliding_window_pattern",
       "bool[6] {true, false, true, false, false, false}"},
      {"qwen2_moe_bf16",
       R"({"use_sliding_window": true, "sliding_window": "remove", "layer_types": "remove"})",
       "qwen2moe.attention.sliding_window", "4096"},
      {"smollm3", R"({"use_sliding_window": true, "sliding_window": 6, "layer_types": "remove"})",
       "smollm3.attention.sliding_window_pattern", "bool[5] {false, false, false, true, false}"},
      {"mistral_window_bf16", R"({"sliding_window": 0})", "", "sliding_window: 0, expected"},
      {"gemma3_text", R"({"sliding_window": 0})", "", "sliding_window: 0, expected"},
      {"mistral_window_bf16", R"({"sliding_window": null})", "llama.attention.sliding_window",
       "none"},
      {"qwen2_moe_bf16", R"({"sliding_window": 0})", "qwen2moe.attention.sliding_window", "none"},
      // Norms, caps and the mask.
      {"deepseek_v3", R"({"rms_norm_eps": 1e-5})", "deepseek2.attention.mla_norm_rms_epsilon",
       "9.99999997e-07"},
      {"deepseek_v3", R"({})", "deepseek2.attention.mla_norm_rms_epsilon", "none"},
      {"gemma3_text", R"({"attn_logit_softcapping": 0.7})", "gemma3.attn_logit_softcapping",
       "none"},
      {"gemma3_text", R"({"is_causal": false})", "", "is_causal: false is not supported"},
      {"llama_f32", R"({"is_causal": 0})", "", "is_causal: 0 is not supported, expected true"},
      // Rotary settings.
      {"gemma3_text",
       R"({"rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 4.0,
           "rope_theta": 1000.0, "truncate": false}, "sliding_attention": {}}})",
       "gemma3.rope.scaling.yarn_truncate", "none"},
      {"gemma3_text",
       R"({"rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 4.0},
           "truncate": false, "sliding_attention": {}}})",
       "gemma3.rope.scaling.yarn_truncate", "false"},
      {"gpt_oss_bf16", R"({"rope_parameters": "remove"})", "gpt-oss.rope.scaling.factor", "32"},
      {"gpt_oss_bf16", R"({"rope_parameters": null})", "gpt-oss.rope.freq_base", "150000"},
      {"gpt_oss_bf16", R"({"rope_parameters": "remove",
                           "rope_scaling": {"rope_type": "yarn", "factor": 16.0}})",
       "gpt-oss.rope.scaling.factor", "16"},
      {"llama_yarn_f16", R"({"original_max_position_embeddings": 8})",
       "llama.rope.scaling.original_context_length", "8"},
      {"phi3_longrope_long", R"({"original_max_position_embeddings": "remove"})",
       "phi3.rope.scaling.original_context_length", "4096"},
      {"phi3_longrope_long", R"({"original_max_position_embeddings": 64})",
       "phi3.rope.scaling.original_context_length", "64"},
      {"llama_yarn_f16", R"({"max_position_embeddings": 80,
                             "rope_parameters": {"rope_type": "yarn", "factor": null,
                                                 "original_max_position_embeddings": 32}})",
       "llama.rope.scaling.factor", "2.5"},
      {"llama_yarn_f16", R"({"rope_parameters": {"rope_type": "yarn"}})", "",
       "rope_parameters.factor: missing, expected a number above 0"},
      // transformers does not clamp the upper bound of YaRN at 0, so nothing would be interpolated.
      {"llama_yarn_f16", R"({"rope_parameters": {"rope_type": "yarn", "factor": 4.0,
                             "beta_slow": 64.0, "original_max_position_embeddings": 16}})",
       "", "rope_parameters.beta_slow: 64 is not supported with a context before scaling of 16"},
      // Gemma 3 has two sets of rotary settings. In rope_scaling, only the newer name of the type
      // is read.
      {"gemma3_text", R"({"rope_parameters": {"rope_type": "linear", "factor": 8.0}})", "",
       "rope_parameters: {\"factor\":8.0,\"rope_type\":\"linear\"} is not supported, expected "
       "full_attention and sliding_attention"},
      {"gemma3_text", R"({"rope_parameters": "remove",
                          "rope_scaling": {"type": "linear", "factor": 8.0}})",
       "", "rope_scaling.type: \"linear\" is not supported, expected the key rope_type"},
      {"gemma3_text", R"({"rope_parameters": "remove",
                          "rope_scaling": {"rope_type": "linear", "factor": 8.0}})",
       "gemma3.rope.scaling.factor", "8"},
      {"deepseek_v3", R"({"rope_interleave": null})", "", "rope_interleave: null"},
      {"deepseek_v3", R"({"head_dim": 4})", "", "head_dim: 4, expected 8, qk_rope_head_dim"},
      {"deepseek_v3", R"({"head_dim": 8})", "general.architecture", "\"deepseek2\""},
      // Keys that transformers does not read in a family, and names that it replaces.
      {"phi3", R"({"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]})",
       "", "is not supported, expected \"sliding_attention\""},
      {"gemma", R"({"hidden_act": "gelu"})", "general.architecture", "\"gemma\""},
      {"gemma2", R"({"hidden_act": "gelu"})", "", "hidden_act: \"gelu\" is not supported"},
      {"hunyuan_v1_dense", R"({"im_newline_id": 11, "video_start_id": 9})", "general.architecture",
       "\"hunyuan-dense\""},
      {"gemma3_vision", R"({"model_type": "remove"})", "", "model_type: missing"},
      // Errors name the key with its whole path.
      {"llama_yarn_f16", R"({"rope_parameters": {"rope_type": "yarn", "factor": "4"}})", "",
       "rope_parameters.factor: \"4\", expected a finite number"},
      {"llama_yarn_f16", R"({"rope_parameters": {"rope_type": 4}})", "",
       "rope_parameters.rope_type: 4, expected"},
      {"llama_yarn_f16", R"({"rope_parameters": {"rope_theta": 0.5}})", "",
       "rope_parameters.rope_theta: 0.5, expected a number above 1"},
      {"gemma3_text",
       R"({"rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": "4"},
           "sliding_attention": {}}})",
       "", "rope_parameters.full_attention.factor: \"4\", expected a finite number"},
      {"gemma3_text",
       R"({"rope_parameters": {"full_attention": {},
           "sliding_attention": {"rope_type": "linear", "factor": 2.0}}})",
       "", "rope_parameters.sliding_attention.rope_type: \"linear\" is not supported"},
      {"phi3", R"({"rope_parameters": {"rope_type": "yarn"}})", "", "long_factor: missing"},
      {"deepseek_v3", R"({"rope_parameters": {"rope_type": "yarn", "factor": 8.0}})",
       "deepseek2.rope.scaling.yarn_rotary_factor", "1.20794415"},
      {"deepseek_v3", R"({})", "deepseek2.rope.scaling.yarn_rotary_factor", "none"},
      // Multimodal models. Errors name the key of text_config.
      {"gemma3_vision", R"({"text_config": {"model_type": "llama", "hidden_size": -1}})", "",
       "text_config.hidden_size: -1, expected an integer"},
      {"gemma3_vision", R"({"text_config": {"model_type": "gemma4"}})", "",
       "text_config.model_type: \"gemma4\" is not supported"},
      {"gemma3_vision", R"({"text_config": {"model_type": "gemma2"}, "model_type": "llava"})", "",
       "text_config.final_logit_softcapping: 30.0 is not supported in model_type \"llava\""},
      {"gemma3_vision", R"({"text_config": {"model_type": "gemma"}, "model_type": "paligemma"})",
       "", "model_type: \"paligemma\" is not supported"},
      {"gemma3_vision", R"({"text_config": {"model_type": "llama", "quantization_config": {}}})",
       "", "text_config.quantization_config: this quantised checkpoint is not supported"},
      // The published Qwen3-VL-MoE models have the older names of some keys.
      {"qwen3_vl_moe",
       R"({"text_config.rope_parameters": "remove", "text_config.rope_theta": 5e6,
           "text_config.rope_scaling": {"mrope_interleaved": true, "mrope_section": [3, 2, 1],
                                        "rope_type": "default"},
           "text_config.num_local_experts": "remove", "text_config.num_experts": 6,
           "text_config.norm_topk_prob": true})",
       "qwen3vlmoe.rope.dimension_sections", "i32[4] {3, 2, 1, 0}"},
      {"qwen3_vl_moe", R"({"text_config.rope_parameters": "remove"})", "qwen3vlmoe.rope.freq_base",
       "500000"},
      {"qwen3_vl_moe", R"({"vision_config": {"deepstack_visual_indexes": [0, 1, 2]}})",
       "qwen3vlmoe.n_deepstack_layers", "3"},
      {"qwen3_vl_moe", R"({"text_config.norm_topk_prob": false})", "",
       "text_config.norm_topk_prob: false is not supported, expected true"},
      {"qwen3_vl_moe", R"({"text_config.shared_expert_intermediate_size": 20})", "",
       "text_config.shared_expert_intermediate_size: 20 is not understood"},
      {"qwen3_vl_moe", R"({"text_config.num_key_value_heads": null})", "",
       "text_config.num_key_value_heads: null, expected a value"},
      {"qwen3_vl_moe", R"({"text_config.mlp_only_layers": [1]})", "",
       "text_config.mlp_only_layers: [1] is not supported, expected no layer without experts"},
      {"qwen3_vl_moe", R"({"text_config.mlp_only_layers": [0, 1]})",
       "qwen3vlmoe.leading_dense_block_count", "2"},
      {"qwen3_vl_moe", R"({"text_config.head_dim": null, "text_config.hidden_size": 50,
                           "text_config.rope_parameters": "remove"})",
       "qwen3vlmoe.attention.key_length", "10"},
      // Experts.
      {"deepseek_v3", R"({"routed_scaling_factor": "remove"})", "deepseek2.expert_weights_scale",
       "2.5"},
      {"deepseek_v3", R"({"norm_topk_prob": null})", "deepseek2.expert_weights_norm", "false"},
      {"deepseek_v3", R"({"n_group": 6})", "", "n_group: 6, expected at most 3 groups"},
      {"deepseek_v3", R"({"n_group": 1, "topk_group": 2})", "", "topk_group: 2, expected 1"},
      {"deepseek_v3", R"({"first_k_dense_replace": 3})", "",
       "first_k_dense_replace: 3 is not supported, expected a layer with experts"},
      {"deepseek_v2", R"({"n_group": null, "topk_group": null})", "",
       "n_group: missing, expected it with topk_method"},
      {"deepseek_v2", R"({"topk_method": null})", "", "topk_method: null, expected a value"},
      {"qwen3_moe_bf16", R"({"decoder_sparse_step": 2, "num_hidden_layers": 3})", "",
       "decoder_sparse_step: 2 is not supported, expected no layer without experts"},
      // The number of experts has two names in some families.
      {"qwen3_moe_bf16", R"({"num_local_experts": "remove"})", "",
       "config.json: num_experts: missing, expected this key"},
      {"qwen3_moe_bf16", R"({"num_local_experts": 0})", "", "num_local_experts: 0, expected"},
      {"qwen3_moe_bf16", R"({"num_local_experts": "remove", "num_experts": 5})",
       "qwen3moe.expert_count", "5"},
      {"deepseek_v3", R"({"n_routed_experts": "remove"})", "", "n_routed_experts: missing"},
      {"deepseek_v2", R"({"n_routed_experts": "remove"})", "", "n_routed_experts: missing"},
      {"mixtral_bf16", R"({"num_local_experts": "remove"})", "", "num_local_experts: missing"},
      // A list has a value for each layer. The published Hunyuan-A13B has such lists.
      {"hunyuan_v1_moe", R"({"moe_topk": [3, 3, 3], "moe_intermediate_size": [12, 12, 12],
                             "num_shared_expert": [1, 1, 1]})",
       "hunyuan-moe.expert_used_count", "3"},
      {"hunyuan_v1_moe", R"({"moe_topk": [3, 3]})", "",
       "config.json: moe_topk: a list of 2 values, expected one integer, or one for each of 3 "
       "layers"},
      {"hunyuan_v1_moe", R"({"moe_topk": []})", "", "moe_topk: a list of 0 values, expected one"},
      {"hunyuan_v1_moe", R"({"moe_topk": [3, 2, 3]})", "",
       "moe_topk: [3,2,3] is not supported, expected one integer of 1 to 6"},
      {"hunyuan_v1_moe", R"({"moe_intermediate_size": [12, 12, 12, 12]})", "",
       "moe_intermediate_size: a list of 4 values, expected"},
      {"hunyuan_v1_moe", R"({"num_shared_expert": [1]})", "",
       "num_shared_expert: a list of 1 values, expected"},
      {"qwen3_moe_bf16", R"({"num_experts_per_tok": [3, 3, 3, 3, 3]})", "",
       "num_experts_per_tok: a list of 5 values, expected one integer, or one for each of 2"},
      {"ernie4_5_moe", R"({"moe_intermediate_size": [12, 12]})", "",
       "moe_intermediate_size: a list of 2 values, expected one integer, or one for each of 3"},
      // transformers refuses null for these keys.
      {"llama_f32", R"({"attention_bias": null})", "", "attention_bias: null, expected a value"},
      // Layers without attention.
      {"qwen3_5_text", R"({})", "qwen35.attention.recurrent_layers", "bool[3] {false, true, true}"},
      {"qwen3_5_text", R"({"layer_types": "remove", "num_hidden_layers": 5})",
       "qwen35.attention.recurrent_layers", "bool[5] {true, true, true, false, true}"},
      {"qwen3_5_text", R"({"layer_types": "remove", "full_attention_interval": 2})",
       "qwen35.attention.recurrent_layers", "bool[3] {true, false, true}"},
      {"qwen3_5_text", R"({"layer_types": ["full_attention", "conv", "full_attention"]})", "",
       "expected 3 times full_attention or linear_attention"},
      {"qwen3_5_text", R"({"linear_num_key_heads": 4})", "",
       "linear_num_key_heads: 4, expected a divisor of 6, linear_num_value_heads"},
      {"qwen3_5_text", R"({"linear_conv_kernel_dim": 9})", "",
       "linear_conv_kernel_dim: 9, expected"},
      {"qwen3_5_text", R"({"attn_output_gate": false})", "",
       "attn_output_gate: false is not supported, expected true"},
      {"qwen3_5_text", R"({"partial_rotary_factor": 0.5,
                           "rope_parameters": {"mrope_section": [11, 11, 10]}})",
       "", "expected three numbers of pairs, at most 3 in all"},
      {"qwen3_5_text", R"({"partial_rotary_factor": 0.5,
                           "rope_parameters": {"mrope_interleaved": false}})",
       "", "mrope_interleaved: false is not supported, expected true"},
      {"qwen3_5_text", R"({})", "qwen35.rope.dimension_sections", "i32[4] {1, 1, 1, 0}"},
      {"qwen3_5_text", R"({"rope_parameters": "remove", "head_dim": 16})",
       "qwen35.rope.dimension_count", "4"},
      {"lfm2", R"({"layer_types": "remove", "full_attn_idxs": [0, 3]})",
       "lfm2.attention.head_count_kv", "i32[4] {1, 0, 0, 1}"},
      {"lfm2", R"({"layer_types": "remove"})", "lfm2.attention.head_count_kv",
       "i32[4] {1, 1, 1, 1}"},
      {"lfm2", R"({"intermediate_size": "remove", "block_ff_dim": 100})",
       "lfm2.feed_forward_length", "77"},
      {"lfm2", R"({"block_auto_adjust_ff_dim": false})", "lfm2.feed_forward_length", "45"},
      {"lfm2", R"({"block_ffn_dim_multiplier": null})", "",
       "block_ffn_dim_multiplier: null, expected a value"},
      {"lfm2", R"({"conv_bias": true})", "", "conv_bias: true is not supported, expected false"},
      {"lfm2_moe", R"({"use_expert_bias": false})", "",
       "use_expert_bias: false is not supported, expected true"},
      {"llama_f32", R"({"hidden_act": null})", "", "hidden_act: null, expected a value"},
      {"llama_f32", R"({"rope_parameters": {"rope_theta": null}})", "",
       "rope_theta: null, expected"},
      {"mistral_window_bf16", R"({"num_key_value_heads": null})", "",
       "num_key_value_heads: null, expected a value"},
      {"qwen2_moe_bf16", R"({"norm_topk_prob": null})", "", "norm_topk_prob: null, expected"},
      {"qwen3_moe_bf16", R"({"norm_topk_prob": null})", "", "norm_topk_prob: null, expected"},
      {"qwen3_moe_bf16", R"({"head_dim": null})", "", "head_dim: null, expected a value"},
      {"olmoe", R"({"norm_topk_prob": null})", "", "norm_topk_prob: null, expected a value"},
      {"glm4_moe", R"({"norm_topk_prob": null})", "", "norm_topk_prob: null, expected a value"},
      {"glm4_moe", R"({"first_k_dense_replace": null})", "",
       "first_k_dense_replace: null, expected"},
      {"granite", R"({"logits_scaling": null})", "", "logits_scaling: null, expected a value"},
      {"gemma2", R"({"sliding_window": null})", "", "sliding_window: null, expected a value"},
      {"gemma2", R"({"final_logit_softcapping": null})", "gemma2.final_logit_softcapping", "none"},
  };
  for (const Row& row : rows) {
    const std::string text = Read(Edited(row.model, row.edit), row.key);
    const std::string about = absl::StrCat(row.model, " ", row.edit);
    if (*row.key != '\0') {
      EXPECT_EQ(text, row.expected) << about;
    } else {
      EXPECT_TRUE(absl::StrContains(text, row.expected)) << about << ": " << text;
    }
  }
}

// Some published models use their embedding as the output weight, and have a copy of it.
TEST(HfConfig, AcceptsACopyOfTheEmbeddingAsOutputWeight) {
  namespace fs = std::filesystem;
  const fs::path path = fs::path(testing::TempDir()) / "tied";
  fs::remove_all(path);
  fs::create_directories(path);
  const std::string model = "llama_f32";
  for (const auto& entry : fs::directory_iterator("tests/golden/hf/" + model)) {
    std::ofstream(path / entry.path().filename(), std::ios::binary) << ReadAll(entry.path());
  }
  const auto write = [&](const char* name, const std::string& bytes) {
    // Create a new file, because a mapped file must not change.
    fs::remove(path / name);
    std::ofstream(path / name, std::ios::binary) << bytes;
  };
  write("config.json", Edited(model, R"({"tie_word_embeddings": true})").dump());
  const auto refused = OpenCheckpoint(path.string());
  EXPECT_TRUE(absl::StrContains(refused.status().message(),
                                "lm_head.weight: differs from model.embed_tokens.weight"))
      << refused.status();
  std::string weights = ReadAll(path / "model.safetensors");
  const auto contents = hf::ParseSafetensors(
      "model",
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(weights.data()), weights.size()));
  ASSERT_TRUE(contents.ok()) << contents.status();
  const hf::StoredTensor* embedding = nullptr;
  const hf::StoredTensor* output = nullptr;
  for (const hf::StoredTensor& tensor : contents->tensors) {
    if (tensor.name == "model.embed_tokens.weight") embedding = &tensor;
    if (tensor.name == "lm_head.weight") output = &tensor;
  }
  ASSERT_TRUE(embedding != nullptr && output != nullptr);
  std::memcpy(&weights[output->file_offset], &weights[embedding->file_offset], embedding->bytes);
  write("model.safetensors", weights);
  const auto accepted = OpenCheckpoint(path.string());
  EXPECT_TRUE(accepted.ok()) << accepted.status();
  fs::remove_all(path);
}

}  // namespace
}  // namespace tidepool::engine
