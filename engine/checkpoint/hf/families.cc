#include "engine/checkpoint/hf/families.h"

#include "absl/strings/str_cat.h"

namespace tidepool::engine::hf {
namespace {

constexpr Parts kLlamaParts = {Part::kQkv, Part::kFfnNorm, Part::kDense};
constexpr Parts kQwenMoeParts = {Part::kQkv, Part::kFfnNorm, Part::kDense, Part::kExperts};

constexpr ExpertKeys kMixtralExperts = {.count = "num_local_experts", .width = "intermediate_size"};
constexpr ExpertKeys kQwen2MoeExperts = {.count = "num_experts",
                                         .other_count = "num_local_experts",
                                         .width = "moe_intermediate_size",
                                         .shared_width = "shared_expert_intermediate_size",
                                         .shared_part = Part::kSharedExpert,
                                         .normalize = "norm_topk_prob",
                                         .interval = "decoder_sparse_step",
                                         .own_width = true};
constexpr ExpertKeys kQwen3MoeExperts = {.count = "num_experts",
                                         .other_count = "num_local_experts",
                                         .width = "moe_intermediate_size",
                                         .normalize = "norm_topk_prob",
                                         .interval = "decoder_sparse_step",
                                         .own_width = true};
constexpr ExpertKeys kOlmoeExperts = {.count = "num_experts",
                                      .other_count = "num_local_experts",
                                      .width = "intermediate_size",
                                      .normalize = "norm_topk_prob"};
constexpr ExpertKeys kGraniteExperts = {.count = "num_local_experts",
                                        .width = "intermediate_size"};
constexpr ExpertKeys kGraniteSharedExperts = {.count = "num_local_experts",
                                              .width = "intermediate_size",
                                              .shared_width = "shared_intermediate_size",
                                              .shared_part = Part::kGraniteShared};
constexpr ExpertKeys kErnieExperts = {.count = "moe_num_experts",
                                      .used = "moe_k",
                                      .width = "moe_intermediate_size",
                                      .shared_count = "moe_num_shared_experts",
                                      .shared_part = Part::kSharedExperts,
                                      .first_sparse = "moe_layer_start_index",
                                      .interval = "moe_layer_interval",
                                      .own_width = true};
constexpr ExpertKeys kHunyuanExperts = {.count = "num_experts",
                                        .other_count = "num_local_experts",
                                        .used = "moe_topk",
                                        .width = "intermediate_size",
                                        .shared_count = "num_shared_expert",
                                        .shared_part = Part::kSharedMlp};
constexpr ExpertKeys kSigmoidExperts = {.count = "n_routed_experts",
                                        .other_count = "num_local_experts",
                                        .width = "moe_intermediate_size",
                                        .shared_count = "n_shared_experts",
                                        .shared_part = Part::kSharedExperts,
                                        .normalize = "norm_topk_prob",
                                        .scale = "routed_scaling_factor",
                                        .groups = true,
                                        .gating = 2,
                                        .first_sparse = "first_k_dense_replace",
                                        .own_width = true};
constexpr ExpertKeys kDeepseek2Experts = {.count = "n_routed_experts",
                                          .other_count = "num_experts",
                                          .width = "moe_intermediate_size",
                                          .shared_count = "n_shared_experts",
                                          .shared_part = Part::kSharedExperts,
                                          .scale = "routed_scaling_factor",
                                          .groups = true,
                                          .gating = 1,
                                          .first_sparse = "first_k_dense_replace",
                                          .own_width = true};

constexpr NumberKey kGraniteNumbers[] = {{"attention_multiplier", "attention.scale"},
                                         {"embedding_multiplier", "embedding_scale"},
                                         {"residual_multiplier", "residual_scale"},
                                         {"logits_scaling", "logit_scale"}};
constexpr NumberKey kGemmaNumbers[] = {{"attn_logit_softcapping", "attn_logit_softcapping"},
                                       {"final_logit_softcapping", "final_logit_softcapping"}};

constexpr FixedKey kGlm4MoeFixed[] = {{"num_nextn_predict_layers", ""},
                                      {"scoring_func", "\"sigmoid\""},
                                      {"topk_method", "\"noaux_tc\""}};
constexpr FixedKey kErnieFixed[] = {
    {"use_rmsnorm", "true"}, {"moe_gate", "\"topk\""},     {"moe_use_aux_free", "true"},
    {"moe_capacity", ""},    {"moe_norm_min", "1e-12"},    {"moe_gate_act", "\"softmax\""},
    {"moe_aux_loss_lambda", ""}, {"num_nextn_predict_layers", ""}};
constexpr FixedKey kErnieDenseFixed[] = {{"use_rmsnorm", "true"}};
constexpr FixedKey kHunyuanFixed[] = {
    {"eod_token_id", ""},      {"use_qk_norm", "true"},        {"use_rotary_pos_emb", "true"},
    {"norm_type", "\"rms\""},  {"use_mixed_mlp_moe", "true"},  {"norm_topk_prob", "true"},
    {"moe_drop_tokens", ""},   {"moe_random_routing_dropped_token", ""},
    {"group_limited_greedy", "false"}, {"im_start_id", ""},    {"im_end_id", ""},
    {"text_start_id", ""},     {"text_end_id", ""},            {"mask_init_id", ""},
    {"num_media_embeds", ""},  {"attention_head_dim", ""},     {"cla_share_factor", ""},
    {"org_vocab_size", ""},    {"position_embedding_xdrope", "false"}, {"pad_id", ""},
    {"class_num", ""},         {"routed_scaling_factor", "1.0"}, {"capacity_factor", ""}};
constexpr FixedKey kGptOssFixed[] = {{"swiglu_alpha", "1.702"},
                                     {"swiglu_limit", "7.0"},
                                     {"initial_context_length", ""},
                                     {"experts_per_token", ""}};
constexpr FixedKey kDeepseekFixed[] = {
    {"aux_loss_alpha", ""},        {"seq_aux", ""},       {"ep_size", ""},
    {"moe_layer_freq", "1"},       {"qk_head_dim", ""},   {"head_dim", ""},
    {"rope_interleave", "true"},   {"num_nextn_predict_layers", ""}};

constexpr char kGemmaDefaults[] =
    R"({"head_dim": 256, "tie_word_embeddings": true, "rms_norm_eps": 1e-6,
        "hidden_activation": "gelu_pytorch_tanh"})";
constexpr char kGemma2Defaults[] =
    R"({"head_dim": 256, "tie_word_embeddings": true, "rms_norm_eps": 1e-6,
        "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256,
        "sliding_window": 4096, "sliding_window_pattern": 2,
        "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0})";
// The text_config of the published models leaves out much.
constexpr char kGemma3Defaults[] =
    R"({"head_dim": 256, "tie_word_embeddings": true, "rms_norm_eps": 1e-6,
        "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256,
        "sliding_window": 4096, "sliding_window_pattern": 6, "rope_theta": 1000000.0,
        "rope_local_base_freq": 10000.0, "num_attention_heads": 8, "num_key_value_heads": 4,
        "vocab_size": 262208, "max_position_embeddings": 131072})";
constexpr char kGptOssDefaults[] =
    R"({"head_dim": 64, "sliding_window": 128, "sliding_window_pattern": 2,
        "rope_theta": 150000.0, "attention_bias": true})";

constexpr HfFamily kFamilies[] = {
    {.model_type = "llama",
     .architecture = "llama",
     .parts = kLlamaParts,
     .rotary_pairs = true,
     .mlp_bias = true,
     .bias = ConfigBias::kByKey},
    {.model_type = "mistral",
     .architecture = "llama",
     .parts = kLlamaParts,
     .rotary_pairs = true,
     .window = ConfigWindow::kAlways},
    {.model_type = "mixtral",
     .architecture = "llama",
     .parts = {Part::kQkv, Part::kFfnNorm, Part::kMixtralExperts},
     .rotary_pairs = true,
     .window = ConfigWindow::kAlways,
     .experts = kMixtralExperts,
     .defaults = R"({"rope_theta": 1000000.0})"},
    {.model_type = "qwen2",
     .architecture = "qwen2",
     .parts = kLlamaParts,
     .bias = ConfigBias::kQkv,
     .window = ConfigWindow::kSwitched},
    {.model_type = "qwen2_moe",
     .architecture = "qwen2moe",
     .parts = kQwenMoeParts,
     .bias = ConfigBias::kQkvUnless,
     .window = ConfigWindow::kSwitched,
     .experts = kQwen2MoeExperts},
    {.model_type = "qwen3",
     .architecture = "qwen3",
     .parts = {Part::kQkv, Part::kQkNorm, Part::kFfnNorm, Part::kDense},
     .bias = ConfigBias::kByKey,
     .window = ConfigWindow::kSwitched,
     .defaults = R"({"head_dim": 128})"},
    {.model_type = "qwen3_moe",
     .architecture = "qwen3moe",
     .parts = {Part::kQkv, Part::kQkNorm, Part::kFfnNorm, Part::kDense, Part::kExperts},
     .bias = ConfigBias::kByKey,
     .window = ConfigWindow::kSwitched,
     .experts = kQwen3MoeExperts},
    {.model_type = "olmo2",
     .architecture = "olmo2",
     .parts = {Part::kQkv, Part::kQkNorm, Part::kPostNorms, Part::kDense}},
    {.model_type = "olmoe",
     .architecture = "olmoe",
     .parts = {Part::kQkv, Part::kQkNorm, Part::kFfnNorm, Part::kExperts},
     .experts = kOlmoeExperts},
    {.model_type = "granite",
     .architecture = "granite",
     .parts = kLlamaParts,
     .rotary_pairs = true,
     .mlp_bias = true,
     .bias = ConfigBias::kByKey,
     .numbers = kGraniteNumbers,
     .defaults = R"({"attention_multiplier": 1.0, "rms_norm_eps": 1e-6})"},
    {.model_type = "granitemoe",
     .architecture = "granitemoe",
     .parts = {Part::kQkv, Part::kFfnNorm, Part::kGraniteExperts},
     .rotary_pairs = true,
     .bias = ConfigBias::kByKey,
     .experts = kGraniteExperts,
     .numbers = kGraniteNumbers,
     .defaults = R"({"attention_multiplier": 1.0, "rms_norm_eps": 1e-6})"},
    {.model_type = "granitemoeshared",
     .architecture = "granitemoe",
     .parts = {Part::kQkv, Part::kFfnNorm, Part::kGraniteExperts},
     .rotary_pairs = true,
     .bias = ConfigBias::kByKey,
     .experts = kGraniteSharedExperts,
     .numbers = kGraniteNumbers,
     .defaults = R"({"attention_multiplier": 1.0, "rms_norm_eps": 1e-6})"},
    {.model_type = "phi3",
     .architecture = "phi3",
     .parts = {Part::kFusedQkv, Part::kFfnNorm, Part::kDenseFused},
     .partial_rotary = true,
     .window = ConfigWindow::kAlways},
    {.model_type = "smollm3",
     .architecture = "smollm3",
     .parts = kLlamaParts,
     .rotary_pairs = true,
     .mlp_bias = true,
     .bias = ConfigBias::kByKey,
     .window = ConfigWindow::kSwitched,
     .no_rope = "no_rope_layers",
     .defaults = R"({"rope_theta": 2000000.0, "tie_word_embeddings": true,
                     "no_rope_layer_interval": 4})"},
    {.model_type = "gemma",
     .architecture = "gemma",
     .parts = kLlamaParts,
     .gelu = true,
     .norm_plus_one = true,
     .defaults = kGemmaDefaults},
    {.model_type = "gemma2",
     .architecture = "gemma2",
     .parts = {Part::kQkv, Part::kGemmaNorms, Part::kDense},
     .gelu = true,
     .norm_plus_one = true,
     .window = ConfigWindow::kPattern,
     .numbers = kGemmaNumbers,
     .defaults = kGemma2Defaults},
    {.model_type = "gemma3_text",
     .architecture = "gemma3",
     .parts = {Part::kQkv, Part::kQkNorm, Part::kGemmaNorms, Part::kDense},
     .gelu = true,
     .norm_plus_one = true,
     .local_rope = true,
     .window = ConfigWindow::kPattern,
     .numbers = kGemmaNumbers,
     .defaults = kGemma3Defaults},
    {.model_type = "glm4",
     .architecture = "glm4",
     .parts = {Part::kQkv, Part::kGlm4Norms, Part::kDenseFused},
     .partial_rotary = true,
     .bias = ConfigBias::kQkvByKey,
     .defaults = R"({"partial_rotary_factor": 0.5, "head_dim": 128, "attention_bias": true})"},
    {.model_type = "glm4_moe",
     .architecture = "glm4moe",
     .parts = {Part::kQkv, Part::kPostAttentionNorm, Part::kDense, Part::kExperts,
               Part::kSelectionBias},
     .partial_rotary = true,
     .bias = ConfigBias::kQkvByKey,
     .experts = kSigmoidExperts,
     .qk_norm_key = "use_qk_norm",
     .fixed = kGlm4MoeFixed,
     .defaults = R"({"partial_rotary_factor": 0.5, "first_k_dense_replace": 1, "n_group": 1,
                     "topk_group": 1, "norm_topk_prob": true, "n_shared_experts": 1})"},
    {.model_type = "ernie4_5",
     .architecture = "ernie4_5",
     .parts = kLlamaParts,
     .fixed = kErnieDenseFixed,
     .defaults = R"({"rope_theta": 500000.0, "tie_word_embeddings": true, "head_dim": 128})"},
    {.model_type = "ernie4_5_moe",
     .architecture = "ernie4_5-moe",
     .parts = {Part::kQkv, Part::kFfnNorm, Part::kDense, Part::kExperts, Part::kErnieSelectionBias},
     .experts = kErnieExperts,
     .fixed = kErnieFixed,
     .defaults = R"({"rope_theta": 500000.0, "tie_word_embeddings": true, "moe_layer_interval": 1,
                     "moe_layer_start_index": 1, "moe_num_shared_experts": 2})"},
    {.model_type = "hunyuan_v1_dense",
     .architecture = "hunyuan-dense",
     .parts = {Part::kQkv, Part::kQkLayernorm, Part::kFfnNorm, Part::kDense},
     .ntk_alpha = true,
     .bias = ConfigBias::kByKey,
     .fixed = kHunyuanFixed},
    {.model_type = "hunyuan_v1_moe",
     .architecture = "hunyuan-moe",
     .parts = {Part::kQkv, Part::kQkLayernorm, Part::kFfnNorm, Part::kHunyuanExperts},
     .ntk_alpha = true,
     .bias = ConfigBias::kByKey,
     .experts = kHunyuanExperts,
     .fixed = kHunyuanFixed,
     .defaults = R"({"num_shared_expert": 1})"},
    {.model_type = "seed_oss",
     .architecture = "seed_oss",
     .parts = {Part::kQkv, Part::kPostAttentionNorm, Part::kDense},
     .mlp_bias = true,
     .bias = ConfigBias::kQkvByKey,
     .defaults = R"({"head_dim": 128, "attention_bias": true})"},
    {.model_type = "gpt_oss",
     .architecture = "gpt-oss",
     .parts = {Part::kQkv, Part::kSinks, Part::kPostAttentionNorm},
     .bias = ConfigBias::kByKey,
     .window = ConfigWindow::kPattern,
     .experts = kMixtralExperts,
     .fixed = kGptOssFixed,
     .defaults = kGptOssDefaults},
    {.model_type = "deepseek_v2",
     .architecture = "deepseek2",
     .parts = {Part::kMla, Part::kFfnNorm, Part::kDense, Part::kExperts},
     .experts = kDeepseek2Experts,
     .fixed = kDeepseekFixed,
     .defaults = R"({"topk_method": "greedy", "first_k_dense_replace": 0,
                     "routed_scaling_factor": 1.0})"},
    {.model_type = "deepseek_v3",
     .architecture = "deepseek2",
     .parts = {Part::kMla, Part::kFfnNorm, Part::kDense, Part::kExperts, Part::kSelectionBias},
     .experts = kSigmoidExperts,
     .fixed = kDeepseekFixed,
     .defaults = R"({"first_k_dense_replace": 3, "norm_topk_prob": true})"},
};

}  // namespace

const HfFamily* FindHfFamily(absl::string_view model_type) {
  for (const HfFamily& family : kFamilies) {
    if (family.model_type == model_type) return &family;
  }
  return nullptr;
}

std::string KnownHfFamilies() {
  std::string names;
  for (const HfFamily& family : kFamilies) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", family.model_type);
  }
  return names;
}

}  // namespace tidepool::engine::hf
