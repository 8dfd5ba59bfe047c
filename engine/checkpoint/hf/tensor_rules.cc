#include "engine/checkpoint/hf/tensor_rules.h"

namespace tidepool::engine::hf {
namespace {

constexpr Parts kInputNorm = {Part::kFfnNorm, Part::kPostAttentionNorm, Part::kGemmaNorms,
                              Part::kGlm4Norms};
constexpr Parts kAnyMla = {Part::kMla};
constexpr Parts kMxfp4 = {Part::kGptOssMxfp4};
constexpr Parts kDelta = {Part::kDeltaNet};
constexpr Parts kFusedDelta = {Part::kDeltaNetFused};
constexpr Parts kAnyDelta = {Part::kDeltaNet, Part::kDeltaNetFused};
constexpr Parts kGptOss = {Part::kGptOssExperts, Part::kGptOssMxfp4};

constexpr TensorRule kLayerRules[] = {
    {"input_layernorm.weight", "attn_norm.weight", kInputNorm},
    {"self_attn.q_proj.weight", "attn_q.weight", {Part::kQkv}, Take::kRotary},
    {"self_attn.k_proj.weight", "attn_k.weight", {Part::kQkv}, Take::kRotary},
    {"self_attn.v_proj.weight", "attn_v.weight", {Part::kQkv}},
    {"self_attn.qkv_proj.weight", "attn_qkv.weight", {Part::kFusedQkv}},
    {"self_attn.o_proj.weight", "attn_output.weight", {Part::kQkv, Part::kFusedQkv, Part::kMla}},
    {"self_attn.q_proj.bias", "attn_q.bias", {Part::kQkvBias}, Take::kRotary},
    {"self_attn.k_proj.bias", "attn_k.bias", {Part::kQkvBias}, Take::kRotary},
    {"self_attn.v_proj.bias", "attn_v.bias", {Part::kQkvBias}},
    {"self_attn.o_proj.bias", "attn_output.bias", {Part::kOutputBias}},
    {"self_attn.q_norm.weight", "attn_q_norm.weight", {Part::kQkNorm}},
    {"self_attn.k_norm.weight", "attn_k_norm.weight", {Part::kQkNorm}},
    {"self_attn.query_layernorm.weight", "attn_q_norm.weight", {Part::kQkLayernorm}},
    {"self_attn.key_layernorm.weight", "attn_k_norm.weight", {Part::kQkLayernorm}},
    {"self_attn.sinks", "attn_sinks.weight", {Part::kSinks}},
    {"self_attn.q_proj.weight", "attn_q.weight", {Part::kLfm2Attention}},
    {"self_attn.k_proj.weight", "attn_k.weight", {Part::kLfm2Attention}},
    {"self_attn.v_proj.weight", "attn_v.weight", {Part::kLfm2Attention}},
    {"self_attn.out_proj.weight", "attn_output.weight", {Part::kLfm2Attention}},
    {"self_attn.q_layernorm.weight", "attn_q_norm.weight", {Part::kLfm2Attention}},
    {"self_attn.k_layernorm.weight", "attn_k_norm.weight", {Part::kLfm2Attention}},

    {"self_attn.q_proj.weight", "attn_q.weight", {Part::kMlaQuery}},
    {"self_attn.q_a_proj.weight", "attn_q_a.weight", {Part::kMlaLowRankQuery}},
    {"self_attn.q_a_layernorm.weight", "attn_q_a_norm.weight", {Part::kMlaLowRankQuery}},
    {"self_attn.q_b_proj.weight", "attn_q_b.weight", {Part::kMlaLowRankQuery}},
    {"self_attn.kv_a_proj_with_mqa.weight", "attn_kv_a_mqa.weight", kAnyMla},
    {"self_attn.kv_a_layernorm.weight", "attn_kv_a_norm.weight", kAnyMla},
    {"self_attn.kv_b_proj.weight", "attn_k_b.weight", kAnyMla, Take::kMlaKeys},
    {"self_attn.kv_b_proj.weight", "attn_v_b.weight", kAnyMla, Take::kMlaValues},

    {"linear_attn.in_proj_qkv.weight", "attn_qkv.weight", kDelta, Take::kDeltaQkv},
    {"linear_attn.in_proj_z.weight", "attn_gate.weight", kDelta, Take::kDeltaRows},
    {"linear_attn.in_proj_b.weight", "ssm_beta.weight", kDelta, Take::kDeltaRows},
    {"linear_attn.in_proj_a.weight", "ssm_alpha.weight", kDelta, Take::kDeltaRows},
    {"linear_attn.conv1d.weight", "ssm_conv1d.weight", kAnyDelta, Take::kDeltaConv},
    {"linear_attn.dt_bias", "ssm_dt.bias", kAnyDelta, Take::kDeltaRows},
    {"linear_attn.A_log", "ssm_a", kAnyDelta, Take::kDeltaDecay},
    {"linear_attn.norm.weight", "ssm_norm.weight", kAnyDelta},
    {"linear_attn.out_proj.weight", "ssm_out.weight", kAnyDelta, Take::kDeltaColumns},
    {"linear_attn.in_proj_qkvz.weight", "attn_qkv.weight", kFusedDelta, Take::kFusedDeltaQkv},
    {"linear_attn.in_proj_qkvz.weight", "attn_gate.weight", kFusedDelta, Take::kFusedDeltaGate},
    {"linear_attn.in_proj_ba.weight", "ssm_ba.weight", kFusedDelta},
    {"conv.in_proj.weight", "shortconv.in_proj.weight", {Part::kShortConv}},
    {"conv.conv.weight", "shortconv.conv.weight", {Part::kShortConv}, Take::kConv},
    {"conv.out_proj.weight", "shortconv.out_proj.weight", {Part::kShortConv}},

    {"operator_norm.weight", "attn_norm.weight", {Part::kLfm2Norms}},
    {"ffn_norm.weight", "ffn_norm.weight", {Part::kLfm2Norms}},
    {"post_attention_layernorm.weight", "ffn_norm.weight", {Part::kFfnNorm, Part::kGlm4Norms}},
    {"post_attention_layernorm.weight",
     "post_attention_norm.weight",
     {Part::kPostAttentionNorm, Part::kGemmaNorms, Part::kPostNorms}},
    {"pre_feedforward_layernorm.weight", "ffn_norm.weight", {Part::kGemmaNorms}},
    {"post_feedforward_layernorm.weight",
     "post_ffw_norm.weight",
     {Part::kGemmaNorms, Part::kPostNorms}},
    {"post_self_attn_layernorm.weight", "post_attention_norm.weight", {Part::kGlm4Norms}},
    {"post_mlp_layernorm.weight", "post_ffw_norm.weight", {Part::kGlm4Norms}},

    {"mlp.gate_proj.weight", "ffn_gate.weight", {Part::kDense}},
    {"mlp.up_proj.weight", "ffn_up.weight", {Part::kDense}},
    {"mlp.gate_up_proj.weight", "ffn_up.weight", {Part::kDenseFused}},
    {"mlp.down_proj.weight", "ffn_down.weight", {Part::kDense, Part::kDenseFused}},
    {"mlp.gate_proj.bias", "ffn_gate.bias", {Part::kMlpBias}},
    {"mlp.up_proj.bias", "ffn_up.bias", {Part::kMlpBias}},
    {"mlp.down_proj.bias", "ffn_down.bias", {Part::kMlpBias}},

    {"feed_forward.w1.weight", "ffn_gate.weight", {Part::kLfm2Dense}},
    {"feed_forward.w3.weight", "ffn_up.weight", {Part::kLfm2Dense}},
    {"feed_forward.w2.weight", "ffn_down.weight", {Part::kLfm2Dense}},

    {"feed_forward.gate.weight", "ffn_gate_inp.weight", {Part::kLfm2Experts}},
    {"feed_forward.experts.#.w1.weight", "ffn_gate_exps.weight", {Part::kLfm2Experts}},
    {"feed_forward.experts.#.w3.weight", "ffn_up_exps.weight", {Part::kLfm2Experts}},
    {"feed_forward.experts.#.w2.weight", "ffn_down_exps.weight", {Part::kLfm2Experts}},
    {"feed_forward.expert_bias", "exp_probs_b.bias", {Part::kLfm2Experts}},

    {"mlp.gate.weight", "ffn_gate_inp.weight", {Part::kExperts, Part::kQwen3VlExperts}},
    {"mlp.experts.#.gate_proj.weight",
     "ffn_gate_exps.weight",
     {Part::kExperts, Part::kHunyuanExperts}},
    {"mlp.experts.#.up_proj.weight", "ffn_up_exps.weight", {Part::kExperts, Part::kHunyuanExperts}},
    {"mlp.experts.#.down_proj.weight",
     "ffn_down_exps.weight",
     {Part::kExperts, Part::kHunyuanExperts}},
    // These sources have all experts in one tensor, as transformers 5 has them in memory.
    {"mlp.experts.gate_up_proj", "ffn_gate_exps.weight", {Part::kExperts}, Take::kFirstRows},
    {"mlp.experts.gate_up_proj", "ffn_up_exps.weight", {Part::kExperts}, Take::kSecondRows},
    {"mlp.experts.down_proj", "ffn_down_exps.weight", {Part::kExperts}},
    {"mlp.experts.gate_up_proj",
     "ffn_gate_exps.weight",
     {Part::kQwen3VlExperts},
     Take::kFirstRows,
     {},
     true},
    {"mlp.experts.gate_up_proj",
     "ffn_up_exps.weight",
     {Part::kQwen3VlExperts},
     Take::kSecondRows,
     {},
     true},
    {"mlp.experts.down_proj",
     "ffn_down_exps.weight",
     {Part::kQwen3VlExperts},
     Take::kAll,
     {},
     true},
    {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias", {Part::kSelectionBias}, Take::kVector},
    {"mlp.moe_statics.e_score_correction_bias",
     "exp_probs_b.bias",
     {Part::kErnieSelectionBias},
     Take::kVector},

    {"block_sparse_moe.gate.weight", "ffn_gate_inp.weight", {Part::kMixtralExperts}},
    {"block_sparse_moe.experts.#.w1.weight", "ffn_gate_exps.weight", {Part::kMixtralExperts}},
    {"block_sparse_moe.experts.#.w3.weight", "ffn_up_exps.weight", {Part::kMixtralExperts}},
    {"block_sparse_moe.experts.#.w2.weight", "ffn_down_exps.weight", {Part::kMixtralExperts}},

    {"block_sparse_moe.router.layer.weight", "ffn_gate_inp.weight", {Part::kGraniteExperts}},
    {"block_sparse_moe.input_linear.weight",
     "ffn_gate_exps.weight",
     {Part::kGraniteExperts},
     Take::kFirstRows},
    {"block_sparse_moe.input_linear.weight",
     "ffn_up_exps.weight",
     {Part::kGraniteExperts},
     Take::kSecondRows},
    {"block_sparse_moe.output_linear.weight", "ffn_down_exps.weight", {Part::kGraniteExperts}},

    {"mlp.gate.wg.weight", "ffn_gate_inp.weight", {Part::kHunyuanExperts}},

    {"mlp.router.weight", "ffn_gate_inp.weight", kGptOss},
    {"mlp.router.bias", "ffn_gate_inp.bias", kGptOss},
    {"mlp.experts.gate_up_proj",
     "ffn_gate_exps.weight",
     {Part::kGptOssExperts},
     Take::kTransposedEven},
    {"mlp.experts.gate_up_proj",
     "ffn_up_exps.weight",
     {Part::kGptOssExperts},
     Take::kTransposedOdd},
    {"mlp.experts.down_proj", "ffn_down_exps.weight", {Part::kGptOssExperts}, Take::kTransposed},
    {"mlp.experts.gate_up_proj_blocks", "ffn_gate_exps.weight", kMxfp4, Take::kMxfp4Even},
    {"mlp.experts.gate_up_proj_blocks", "ffn_up_exps.weight", kMxfp4, Take::kMxfp4Odd},
    {"mlp.experts.gate_up_proj_scales", "", kMxfp4, Take::kMxfp4Scales},
    {"mlp.experts.down_proj_blocks", "ffn_down_exps.weight", kMxfp4, Take::kMxfp4},
    {"mlp.experts.down_proj_scales", "", kMxfp4, Take::kMxfp4Scales},
    {"mlp.experts.gate_up_proj_bias", "ffn_gate_exps.bias", kGptOss, Take::kEvenOfRows},
    {"mlp.experts.gate_up_proj_bias", "ffn_up_exps.bias", kGptOss, Take::kOddOfRows},
    {"mlp.experts.down_proj_bias", "ffn_down_exps.bias", kGptOss},

    {"mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight", {Part::kSharedExpert}},
    {"mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight", {Part::kSharedExpert}},
    {"mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight", {Part::kSharedExpert}},
    {"mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight", {Part::kSharedExpert}},
    {"mlp.shared_experts.gate_proj.weight", "ffn_gate_shexp.weight", {Part::kSharedExperts}},
    {"mlp.shared_experts.up_proj.weight", "ffn_up_shexp.weight", {Part::kSharedExperts}},
    {"mlp.shared_experts.down_proj.weight", "ffn_down_shexp.weight", {Part::kSharedExperts}},
    {"mlp.shared_mlp.gate_proj.weight", "ffn_gate_shexp.weight", {Part::kSharedMlp}},
    {"mlp.shared_mlp.up_proj.weight", "ffn_up_shexp.weight", {Part::kSharedMlp}},
    {"mlp.shared_mlp.down_proj.weight", "ffn_down_shexp.weight", {Part::kSharedMlp}},
    {"shared_mlp.input_linear.weight",
     "ffn_gate_shexp.weight",
     {Part::kGraniteShared},
     Take::kFirstRows},
    {"shared_mlp.input_linear.weight",
     "ffn_up_shexp.weight",
     {Part::kGraniteShared},
     Take::kSecondRows},
    {"shared_mlp.output_linear.weight", "ffn_down_shexp.weight", {Part::kGraniteShared}},
};

constexpr TensorRule kOuterRules[] = {
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight", {Part::kAlways}, Take::kAll, {Part::kLfm2Norms}},
    {"model.embedding_norm.weight", "token_embd_norm.weight", {Part::kLfm2Norms}},
    {"lm_head.weight", "output.weight"},
};

constexpr TensorRule kDraftRules[] = {
    {"fc.weight", "nextn.eh_proj.weight"},
    {"pre_fc_norm_embedding.weight", "nextn.enorm.weight"},
    {"pre_fc_norm_hidden.weight", "nextn.hnorm.weight"},
    {"norm.weight", "nextn.shared_head_norm.weight"},
};

constexpr Parts kAttentionParts = {
    Part::kQkv,      Part::kQkvBias,         Part::kFusedQkv,     Part::kOutputBias,
    Part::kQkNorm,   Part::kQkLayernorm,     Part::kSinks,        Part::kMla,
    Part::kMlaQuery, Part::kMlaLowRankQuery, Part::kLfm2Attention};
constexpr Parts kRecurrentParts = {Part::kDeltaNet, Part::kDeltaNetFused, Part::kShortConv};
constexpr Parts kDenseParts = {Part::kDense, Part::kDenseFused, Part::kMlpBias, Part::kLfm2Dense};
constexpr Parts kSparseParts = {
    Part::kLfm2Experts,        Part::kExperts,       Part::kMixtralExperts, Part::kGraniteExperts,
    Part::kHunyuanExperts,     Part::kGptOssExperts, Part::kGptOssMxfp4,    Part::kSelectionBias,
    Part::kErnieSelectionBias, Part::kSharedExpert,  Part::kSharedExperts,  Part::kSharedMlp,
    Part::kGraniteShared,      Part::kQwen3VlExperts};

}  // namespace

absl::Span<const TensorRule> LayerRules() { return kLayerRules; }

absl::Span<const TensorRule> OuterRules() { return kOuterRules; }

absl::Span<const TensorRule> DraftRules() { return kDraftRules; }

bool Applies(const TensorRule& rule, Parts model_parts, LayerKind kind) {
  if (rule.in.Overlaps(kDenseParts) && kind.sparse) return false;
  if (rule.in.Overlaps(kSparseParts) && !kind.sparse) return false;
  if (rule.in.Overlaps(kAttentionParts) && kind.recurrent) return false;
  if (rule.in.Overlaps(kRecurrentParts) && !kind.recurrent) return false;
  if (rule.unless.Overlaps(model_parts)) return false;
  return rule.in.Has(Part::kAlways) || rule.in.Overlaps(model_parts);
}

}  // namespace tidepool::engine::hf
