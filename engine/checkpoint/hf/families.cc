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
constexpr ExpertKeys kQwen3NextExperts = {.count = "num_experts",
                                          .other_count = "num_local_experts",
                                          .width = "moe_intermediate_size",
                                          .shared_width = "shared_expert_intermediate_size",
                                          .shared_part = Part::kSharedExpert,
                                          .normalize = "norm_topk_prob",
                                          .interval = "decoder_sparse_step",
                                          .own_width = true};
constexpr ExpertKeys kQwen35Experts = {.count = "num_experts",
                                       .other_count = "num_local_experts",
                                       .width = "moe_intermediate_size",
                                       .shared_width = "shared_expert_intermediate_size",
                                       .shared_part = Part::kSharedExpert,
                                       .own_width = true};
constexpr ExpertKeys kLfm2Experts = {.count = "num_experts",
                                     .other_count = "num_local_experts",
                                     .width = "moe_intermediate_size",
                                     .normalize = "norm_topk_prob",
                                     .scale = "routed_scaling_factor",
                                     .gating = 2,
                                     .first_sparse = "num_dense_layers",
                                     .own_width = true};
constexpr ExpertKeys kOlmoeExperts = {.count = "num_experts",
                                      .other_count = "num_local_experts",
                                      .width = "intermediate_size",
                                      .normalize = "norm_topk_prob"};
constexpr ExpertKeys kGraniteExperts = {.count = "num_local_experts", .width = "intermediate_size"};
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
constexpr NumberKey kGemma3Numbers[] = {{"final_logit_softcapping", "final_logit_softcapping"}};
constexpr NumberKey kGemma2Numbers[] = {{"attn_logit_softcapping", "attn_logit_softcapping"},
                                        {"final_logit_softcapping", "final_logit_softcapping"}};

// transformers does not use this key in Gemma 3.
constexpr FixedKey kGemma3Fixed[] = {{"attn_logit_softcapping", ""}};
constexpr FixedKey kGlm4MoeFixed[] = {{"num_nextn_predict_layers", ""},
                                      {"scoring_func", "\"sigmoid\""},
                                      {"topk_method", "\"noaux_tc\""}};
constexpr FixedKey kErnieFixed[] = {{"use_rmsnorm", "true"},      {"moe_gate", "\"topk\""},
                                    {"moe_use_aux_free", "true"}, {"moe_capacity", ""},
                                    {"moe_norm_min", "1e-12"},    {"moe_gate_act", "\"softmax\""},
                                    {"moe_aux_loss_lambda", ""},  {"num_nextn_predict_layers", ""}};
constexpr FixedKey kErnieDenseFixed[] = {{"use_rmsnorm", "true"}};
constexpr FixedKey kHunyuanFixed[] = {{"eod_token_id", ""},
                                      {"use_qk_norm", "true"},
                                      {"use_rotary_pos_emb", "true"},
                                      {"norm_type", ""},
                                      {"use_mixed_mlp_moe", "true"},
                                      {"norm_topk_prob", "true"},
                                      {"moe_drop_tokens", ""},
                                      {"moe_random_routing_dropped_token", ""},
                                      {"group_limited_greedy", "false"},
                                      {"im_start_id", ""},
                                      {"im_end_id", ""},
                                      {"text_start_id", ""},
                                      {"text_end_id", ""},
                                      {"mask_init_id", ""},
                                      {"num_media_embeds", ""},
                                      {"attention_head_dim", ""},
                                      {"cla_share_factor", ""},
                                      {"org_vocab_size", ""},
                                      {"position_embedding_xdrope", "false"},
                                      {"pad_id", ""},
                                      {"class_num", ""},
                                      {"dense_list", ""},
                                      {"pool_type", ""},
                                      {"routed_scaling_factor", "1.0"},
                                      {"capacity_factor", ""}};
constexpr FixedKey kPhi3Fixed[] = {{"interpolate_factor", "1"}, {"full_attn_mod", "1"}};
constexpr FixedKey kGptOssFixed[] = {{"swiglu_alpha", "1.702"},
                                     {"swiglu_limit", "7.0"},
                                     {"initial_context_length", ""},
                                     {"experts_per_token", ""}};
constexpr FixedKey kDeepseekFixed[] = {{"aux_loss_alpha", ""},
                                       {"seq_aux", ""},
                                       {"ep_size", ""},
                                       {"moe_layer_freq", "1"},
                                       {"qk_head_dim", ""},
                                       {"head_dim", ""},
                                       {"rope_interleave", "true"},
                                       {"num_nextn_predict_layers", ""}};

constexpr FixedKey kQwen3NextFixed[] = {{"attention_bias", "false"},
                                        {"mtp_num_hidden_layers", ""},
                                        {"mtp_use_dedicated_embeddings", "false"}};
// transformers reads none of these keys but attention_bias.
constexpr FixedKey kQwen35Fixed[] = {
    {"attention_bias", "false"},       {"attn_output_gate", "true"},
    {"output_gate_type", "\"swish\""}, {"mamba_ssm_dtype", ""},
    {"norm_topk_prob", "true"},        {"decoder_sparse_step", "1"},
    {"mtp_num_hidden_layers", ""},     {"mtp_use_dedicated_embeddings", "false"}};
constexpr FixedKey kLfm2Fixed[] = {
    {"conv_bias", "false"},       {"use_expert_bias", "true"},   {"block_dim", ""},
    {"block_mlp_init_scale", ""}, {"block_norm_eps", ""},        {"block_out_init_scale", ""},
    {"block_use_swiglu", "true"}, {"block_use_xavier_init", ""}, {"conv_dim", ""},
    {"conv_dim_out", ""},         {"conv_use_xavier_init", ""},  {"num_heads", ""},
    {"use_pos_enc", "true"}};

constexpr absl::string_view kHeadKeys[] = {"head_dim", "num_key_value_heads"};
constexpr absl::string_view kGemmaKeys[] = {"head_dim", "num_key_value_heads", "hidden_activation"};
constexpr absl::string_view kHeadDim[] = {"head_dim"};
constexpr absl::string_view kKvHeads[] = {"num_key_value_heads"};
constexpr absl::string_view kContext[] = {"original_max_position_embeddings"};

// The published LLaVA and Idefics models omit many keys in their text_config.
constexpr char kLlamaDefaults[] =
    R"({"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "vocab_size": 32000, "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6})";
constexpr char kMistralDefaults[] =
    R"({"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000,
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-6, "sliding_window": 4096})";
constexpr char kGemmaDefaults[] =
    R"({"head_dim": 256, "tie_word_embeddings": true, "rms_norm_eps": 1e-6,
        "max_position_embeddings": 8192,
        "hidden_activation": "gelu_pytorch_tanh"})";
constexpr char kGemma2Defaults[] =
    R"({"head_dim": 256, "tie_word_embeddings": true, "rms_norm_eps": 1e-6,
        "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256,
        "sliding_window": 4096, "sliding_window_pattern": 2,
        "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0})";
// The published models omit many keys in their text_config.
constexpr char kGemma3Defaults[] =
    R"({"head_dim": 256, "tie_word_embeddings": true, "rms_norm_eps": 1e-6,
        "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256,
        "sliding_window": 4096, "sliding_window_pattern": 6, "rope_theta": 1000000.0,
        "rope_local_base_freq": 10000.0, "num_attention_heads": 8, "num_key_value_heads": 4,
        "vocab_size": 262208, "max_position_embeddings": 131072})";
constexpr char kGptOssDefaults[] =
    R"({"head_dim": 64, "sliding_window": 128, "sliding_window_pattern": 2,
        "rope_theta": 150000.0, "attention_bias": true,
        "rope_parameters": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0,
                            "beta_slow": 1.0, "truncate": false,
                            "original_max_position_embeddings": 4096}})";
constexpr char kQwen3NextDefaults[] =
    R"({"head_dim": 256, "partial_rotary_factor": 0.25, "rms_norm_eps": 1e-6,
        "norm_topk_prob": true, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32})";
constexpr char kQwen35Defaults[] =
    R"({"head_dim": 256, "partial_rotary_factor": 0.25, "rms_norm_eps": 1e-6,
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32})";
constexpr char kLfm2Defaults[] =
    R"({"tie_word_embeddings": true, "norm_eps": 1e-5, "conv_L_cache": 3,
        "rope_theta": 1000000.0, "block_auto_adjust_ff_dim": true, "block_multiple_of": 256,
        "block_ffn_dim_multiplier": 1.0})";
constexpr char kLfm2MoeDefaults[] =
    R"({"tie_word_embeddings": true, "norm_eps": 1e-5, "conv_L_cache": 3,
        "rope_theta": 1000000.0, "num_dense_layers": 2, "norm_topk_prob": true,
        "routed_scaling_factor": 1.0})";
constexpr char kQwenDefaults[] = R"({"sliding_window": 4096})";

constexpr HfFamily kFamilies[] = {
    {.model_type = "llama",
     .architecture = "llama",
     .parts = kLlamaParts,
     .rotary_pairs = true,
     .mlp_bias = true,
     .bias = ConfigBias::kByKey,
     .defaults = kLlamaDefaults},
    {.model_type = "mistral",
     .architecture = "llama",
     .parts = kLlamaParts,
     .rotary_pairs = true,
     .window = ConfigWindow::kAlways,
     .defaults = kMistralDefaults,
     .not_null = kKvHeads},
    {.model_type = "mixtral",
     .architecture = "llama",
     .parts = {Part::kQkv, Part::kFfnNorm, Part::kMixtralExperts},
     .rotary_pairs = true,
     .window = ConfigWindow::kAlways,
     .experts = kMixtralExperts,
     .defaults = R"({"rope_theta": 1000000.0})",
     .not_null = kKvHeads},
    {.model_type = "qwen2",
     .architecture = "qwen2",
     .parts = kLlamaParts,
     .bias = ConfigBias::kQkv,
     .window = ConfigWindow::kSwitched,
     .defaults = kQwenDefaults},
    {.model_type = "qwen2_moe",
     .architecture = "qwen2moe",
     .parts = kQwenMoeParts,
     .bias = ConfigBias::kQkvUnless,
     .window = ConfigWindow::kSwitchedEven,
     .experts = kQwen2MoeExperts,
     .defaults = kQwenDefaults},
    {.model_type = "qwen3",
     .architecture = "qwen3",
     .parts = {Part::kQkv, Part::kQkNorm, Part::kFfnNorm, Part::kDense},
     .bias = ConfigBias::kByKey,
     .window = ConfigWindow::kSwitched,
     .defaults = R"({"head_dim": 128, "sliding_window": 4096})",
     .not_null = kHeadDim},
    {.model_type = "qwen3_moe",
     .architecture = "qwen3moe",
     .parts = {Part::kQkv, Part::kQkNorm, Part::kFfnNorm, Part::kDense, Part::kExperts},
     .bias = ConfigBias::kByKey,
     .window = ConfigWindow::kSwitchedAll,
     .experts = kQwen3MoeExperts,
     .defaults = kQwenDefaults,
     .not_null = kHeadKeys},
    {.model_type = "qwen3_next",
     .architecture = "qwen3next",
     .parts = {Part::kQkv, Part::kQkNorm, Part::kDeltaNetFused, Part::kPostAttentionNorm,
               Part::kDense, Part::kExperts},
     .partial_rotary = true,
     .norm_plus_one = true,
     .mtp = true,
     .experts = kQwen3NextExperts,
     .recurrent = "linear_attention",
     .fixed = kQwen3NextFixed,
     .defaults = kQwen3NextDefaults},
    {.model_type = "qwen3_5_text",
     .architecture = "qwen35",
     .parts = {Part::kQkv, Part::kQkNorm, Part::kDeltaNet, Part::kPostAttentionNorm, Part::kDense},
     .partial_rotary = true,
     .norm_plus_one = true,
     .mrope = true,
     .mtp = true,
     .recurrent = "linear_attention",
     .fixed = kQwen35Fixed,
     .defaults = kQwen35Defaults},
    {.model_type = "qwen3_5_moe_text",
     .architecture = "qwen35moe",
     .parts = {Part::kQkv, Part::kQkNorm, Part::kDeltaNet, Part::kPostAttentionNorm,
               Part::kExperts},
     .partial_rotary = true,
     .norm_plus_one = true,
     .mrope = true,
     .mtp = true,
     .experts = kQwen35Experts,
     .recurrent = "linear_attention",
     .fixed = kQwen35Fixed,
     .defaults = kQwen35Defaults},
    {.model_type = "lfm2",
     .architecture = "lfm2",
     .parts = {Part::kLfm2Attention, Part::kShortConv, Part::kLfm2Norms, Part::kLfm2Dense},
     .block_width = true,
     .recurrent = "conv",
     .eps = "norm_eps",
     .tied = "tie_embedding",
     .fixed = kLfm2Fixed,
     .defaults = kLfm2Defaults},
    {.model_type = "lfm2_moe",
     .architecture = "lfm2moe",
     .parts = {Part::kLfm2Attention, Part::kShortConv, Part::kLfm2Norms, Part::kLfm2Dense,
               Part::kLfm2Experts},
     .experts = kLfm2Experts,
     .recurrent = "conv",
     .eps = "norm_eps",
     .tied = "tie_embedding",
     .fixed = kLfm2Fixed,
     .defaults = kLfm2MoeDefaults},
    {.model_type = "olmo2",
     .architecture = "olmo2",
     .parts = {Part::kQkv, Part::kQkNorm, Part::kPostNorms, Part::kDense}},
    {.model_type = "olmoe",
     .architecture = "olmoe",
     .parts = {Part::kQkv, Part::kQkNorm, Part::kFfnNorm, Part::kExperts},
     .experts = kOlmoeExperts,
     .defaults = R"({"rms_norm_eps": 1e-5})"},
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
     .window = ConfigWindow::kAlways,
     .fixed = kPhi3Fixed,
     .defaults = R"({"original_max_position_embeddings": 4096})",
     .not_null = kContext},
    {.model_type = "smollm3",
     .architecture = "smollm3",
     .parts = kLlamaParts,
     .rotary_pairs = true,
     .mlp_bias = true,
     .bias = ConfigBias::kByKey,
     .window = ConfigWindow::kSwitchedNoRope,
     .no_rope = "no_rope_layers",
     .defaults = R"({"rope_theta": 2000000.0, "tie_word_embeddings": true,
                     "no_rope_layer_interval": 4})"},
    {.model_type = "gemma",
     .architecture = "gemma",
     .parts = kLlamaParts,
     .gelu = true,
     .norm_plus_one = true,
     .defaults = kGemmaDefaults,
     .not_null = kHeadKeys},
    {.model_type = "gemma2",
     .architecture = "gemma2",
     .parts = {Part::kQkv, Part::kGemmaNorms, Part::kDense},
     .gelu = true,
     .norm_plus_one = true,
     .window = ConfigWindow::kPattern,
     .numbers = kGemma2Numbers,
     .defaults = kGemma2Defaults,
     .not_null = kGemmaKeys},
    {.model_type = "gemma3_text",
     .architecture = "gemma3",
     .parts = {Part::kQkv, Part::kQkNorm, Part::kGemmaNorms, Part::kDense},
     .gelu = true,
     .norm_plus_one = true,
     .local_rope = true,
     .window = ConfigWindow::kPattern,
     .numbers = kGemma3Numbers,
     .fixed = kGemma3Fixed,
     .defaults = kGemma3Defaults,
     .not_null = kGemmaKeys},
    {.model_type = "glm4",
     .architecture = "glm4",
     .parts = {Part::kQkv, Part::kGlm4Norms, Part::kDenseFused},
     .partial_rotary = true,
     .bias = ConfigBias::kQkvByKey,
     .defaults = R"({"partial_rotary_factor": 0.5, "head_dim": 128, "attention_bias": true})",
     .not_null = kHeadKeys},
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
                     "topk_group": 1, "norm_topk_prob": true, "n_shared_experts": 1})",
     .not_null = kHeadKeys},
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
     .fixed = kHunyuanFixed,
     .not_null = kHeadDim},
    {.model_type = "hunyuan_v1_moe",
     .architecture = "hunyuan-moe",
     .parts = {Part::kQkv, Part::kQkLayernorm, Part::kFfnNorm, Part::kHunyuanExperts},
     .ntk_alpha = true,
     .bias = ConfigBias::kByKey,
     .experts = kHunyuanExperts,
     .fixed = kHunyuanFixed,
     .defaults = R"({"num_shared_expert": 1})",
     .not_null = kHeadDim},
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
     .defaults = kGptOssDefaults,
     .not_null = kHeadKeys},
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
     .defaults = R"({"first_k_dense_replace": 3, "norm_topk_prob": true, "n_group": 8,
                     "topk_group": 4, "n_shared_experts": 1, "routed_scaling_factor": 2.5})"},
};

}  // namespace

absl::Span<const HfFamily> HfFamilies() { return kFamilies; }

const HfFamily* FindHfFamily(absl::string_view model_type) {
  for (const HfFamily& family : kFamilies) {
    if (family.model_type == model_type) return &family;
  }
  return nullptr;
}

std::vector<int64_t> HfModel::ValueHeads() const {
  const int64_t of_each = delta.v_heads / delta.k_heads;
  std::vector<int64_t> order(delta.v_heads);
  for (int64_t i = 0; i < delta.v_heads; ++i) {
    order[i] = parts.Has(Part::kDeltaNet) ? i % delta.k_heads * of_each + i / delta.k_heads : i;
  }
  return order;
}

std::string KnownHfFamilies() {
  std::string names;
  for (const HfFamily& family : kFamilies) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", family.model_type);
  }
  return names;
}

}  // namespace tidepool::engine::hf
