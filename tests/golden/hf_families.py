"""The model families of make_hf.py that are saved without a tokenizer, and what is special in them."""

import dataclasses

import numpy as np
import torch
from safetensors.torch import save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
DEFAULT = {"rope_type": "default", "rope_theta": 10000.0}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 12, "intermediate_size": 28}
GRANITE = {"embedding_multiplier": 3.5, "residual_multiplier": 0.6, "attention_multiplier": 0.45,
           "logits_scaling": 0.7}
GEMMA = {"head_dim": 12, "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True}
LONG = {"rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
        "short_factor": [1.0, 1.3], "long_factor": [1.7, 4.5]}
MLA = {"kv_lora_rank": 24, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10,
       "num_key_value_heads": 5, "rms_norm_eps": 1e-6, "n_routed_experts": 6,
       "first_k_dense_replace": 1}
DEEPSEEK_YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0,
                 "original_max_position_embeddings": 16, "beta_fast": 32.0, "beta_slow": 1.0}
GPT_OSS = {"hidden_size": 64, "head_dim": 16, "intermediate_size": 32, "num_local_experts": 6,
           "num_experts_per_tok": 3, "sliding_window": 13, "attention_bias": True,
           "rope_parameters": DEEPSEEK_YARN | {"truncate": False}}


@dataclasses.dataclass(frozen=True)
class FamilySpec:
    """Like make_hf.Spec. The token ids are random, because there is no tokenizer."""

    name: str
    family: str
    dtype: torch.dtype = BF16
    n_vocab: int = 59
    shard: str = "1GB"
    mxfp4: bool = False
    vision: dict | None = None  # the settings of the other half of a multimodal model
    config: dict = dataclasses.field(default_factory=dict)


# Gemma 3 with images: the text model's settings are in text_config.
VISION = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
          "num_attention_heads": 2, "image_size": 8, "patch_size": 4}
SMALL = {"hidden_size": 40, "intermediate_size": 28, "num_hidden_layers": 3, "eos_token_id": 58,
         "pad_token_id": 57, "rope_parameters": DEFAULT}
FAMILIES = (
    FamilySpec("olmoe", "Olmoe", config={
        "num_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 12,
        "norm_topk_prob": False, "tie_word_embeddings": False}),
    FamilySpec("granite", "Granite", config=GRANITE | {"attention_bias": True, "mlp_bias": True}),
    FamilySpec("granitemoe", "GraniteMoe", config=GRANITE | {
        "num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 12}),
    FamilySpec("granitemoeshared", "GraniteMoeShared", config=GRANITE | {
        "num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 12,
        "shared_intermediate_size": 20}),
    FamilySpec("olmo2", "Olmo2", config={"attention_bias": False, "tie_word_embeddings": False}),
    FamilySpec("phi3", "Phi3", config={"sliding_window": 13, "tie_word_embeddings": False}),
    FamilySpec("phi3_longrope_short", "Phi3", config={
        "original_max_position_embeddings": 64, "max_position_embeddings": 256,
        "rope_parameters": LONG | {"original_max_position_embeddings": 64}}),
    FamilySpec("phi3_longrope_long", "Phi3", config={
        "original_max_position_embeddings": 16, "max_position_embeddings": 256,
        "rope_parameters": LONG | {"original_max_position_embeddings": 16}}),
    FamilySpec("smollm3", "SmolLM3", config={"num_hidden_layers": 5, "attention_bias": True}),
    FamilySpec("gemma", "Gemma", config=GEMMA | {"hidden_act": "gelu_pytorch_tanh"}),
    FamilySpec("gemma2", "Gemma2", config=GEMMA | {
        "sliding_window": 13, "query_pre_attn_scalar": 10, "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 8.0}),
    FamilySpec("gemma3_text", "Gemma3Text", config=GEMMA | {
        "num_hidden_layers": 7, "sliding_window": 13, "query_pre_attn_scalar": 10,
        "intermediate_size": 20,
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0},
            "sliding_attention": DEFAULT}}),
    FamilySpec("gemma3_vision", "Gemma3", vision=VISION, config=GEMMA | {
        "num_hidden_layers": 2, "sliding_window": 13, "query_pre_attn_scalar": 10,
        "layer_types": ["full_attention", "sliding_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0},
            "sliding_attention": DEFAULT}}),
    FamilySpec("glm4", "Glm4", config={
        "attention_bias": True, "head_dim": 12, "tie_word_embeddings": False,
        "rope_parameters": DEFAULT | {"partial_rotary_factor": 0.5}}),
    FamilySpec("glm4_moe", "Glm4Moe", shard="60KB", config=EXPERTS | {
        "n_routed_experts": 6, "n_shared_experts": 1, "first_k_dense_replace": 1,
        "routed_scaling_factor": 1.6, "n_group": 1, "topk_group": 1, "norm_topk_prob": True,
        "use_qk_norm": True, "attention_bias": True, "head_dim": 12,
        "tie_word_embeddings": False,
        "rope_parameters": DEFAULT | {"partial_rotary_factor": 0.5}}),
    FamilySpec("ernie4_5", "Ernie4_5", config={"use_bias": False, "head_dim": 12}),
    FamilySpec("ernie4_5_moe", "Ernie4_5_Moe", config=EXPERTS | {
        "moe_num_experts": 6, "moe_k": 2, "moe_num_shared_experts": 2, "moe_layer_start_index": 1,
        "use_bias": False}),
    FamilySpec("hunyuan_v1_dense", "HunYuanDenseV1", config={
        "head_dim": 12,
        "rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "alpha": 50.0,
                            "factor": 1.0}}),
    FamilySpec("hunyuan_v1_moe", "HunYuanMoEV1", config={
        "num_experts": 6, "moe_topk": 2, "intermediate_size": 12, "head_dim": 12,
        "rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "alpha": 50.0,
                            "factor": 1.0}}),
    FamilySpec("seed_oss", "SeedOss", config={
        "head_dim": 12, "attention_bias": True, "attention_out_bias": False,
        "tie_word_embeddings": False}),
    FamilySpec("gpt_oss_mxfp4", "GptOss", mxfp4=True, config=GPT_OSS | {
        "tie_word_embeddings": False}),
    FamilySpec("gpt_oss_bf16", "GptOss", config=GPT_OSS | {
        "num_hidden_layers": 2, "hidden_size": 36, "intermediate_size": 20}),
    FamilySpec("deepseek_v2_lite", "DeepseekV2", config=EXPERTS | MLA | {
        "q_lora_rank": None, "n_shared_experts": 2, "topk_method": "greedy",
        "routed_scaling_factor": 1.0, "norm_topk_prob": False, "n_group": 1, "topk_group": 1,
        "rope_parameters": DEEPSEEK_YARN | {"mscale": 0.707, "mscale_all_dim": 0.707}}),
    FamilySpec("deepseek_v2", "DeepseekV2", config=EXPERTS | MLA | {
        "q_lora_rank": 20, "n_shared_experts": 2, "topk_method": "group_limited_greedy",
        "n_group": 3, "topk_group": 2, "routed_scaling_factor": 1.7, "norm_topk_prob": False,
        "tie_word_embeddings": False}),
    FamilySpec("deepseek_v3", "DeepseekV3", shard="60KB", config=EXPERTS | MLA | {
        "q_lora_rank": 20, "n_shared_experts": 1, "n_group": 3, "topk_group": 2,
        "routed_scaling_factor": 2.5, "norm_topk_prob": True, "tie_word_embeddings": False,
        "rope_parameters": DEEPSEEK_YARN | {"mscale": 1.0, "mscale_all_dim": 1.0}}),
    FamilySpec("qwen3_yarn", "Qwen3", config={
        "head_dim": 12, "attention_bias": True, "max_position_embeddings": 128,
        "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
                            "original_max_position_embeddings": 32}}),
    FamilySpec("qwen3_dynamic", "Qwen3", config={
        "head_dim": 12, "rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0,
                                            "factor": 2.0}}),
    FamilySpec("llama_bias", "Llama", config={
        "attention_bias": True, "mlp_bias": True, "head_dim": 12,
        "rope_parameters": {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0,
                            "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                            "original_max_position_embeddings": 16}}),
)


def is_router(name):
    return name.endswith(("mlp.gate.weight", "router.weight", "gate.wg.weight"))


def initial_values(name, shape, rng, spec):
    """Random values for what make_hf.randomise does not know. None: it knows the parameter."""
    if "norm" in name and spec.family.startswith("Gemma"):
        return rng.uniform(-0.4, 0.7, shape)  # used as 1 + w
    if name.endswith("e_score_correction_bias"):
        return rng.normal(0.0, 0.1 if spec.family.startswith("Ernie") else 0.3, shape)
    if name.endswith("sinks"):
        return rng.normal(0.0, 1.5, shape)
    if name.endswith("_bias"):
        return rng.normal(0.0, 0.5, shape)
    if is_router(name):
        return rng.normal(0.0, 2.0 / np.sqrt(shape[-1]), shape)
    return None


class TopKMargin:
    """Patches torch.topk to record the smallest gap at the edge of a router's choice."""

    def __init__(self):
        self.smallest = float("inf")

    def __enter__(self):
        self._saved = torch.topk, torch.Tensor.topk
        torch.topk = torch.Tensor.topk = lambda *args, **kwargs: self._top_k(*args, **kwargs)
        return self

    def __exit__(self, *_):
        torch.topk, torch.Tensor.topk = self._saved

    def _top_k(self, values, k, *args, **kwargs):
        if values.dim() > 1 and k < values.shape[-1]:
            top = self._saved[0](values, k + 1, dim=-1).values
            gap = float(torch.nan_to_num(top[..., -2] - top[..., -1], nan=float("inf")).min())
            self.smallest = min(self.smallest, gap)
        return self._saved[0](values, k, *args, **kwargs)


def randomise_mxfp4(model, seed):
    """Sets the experts of a gpt-oss model to random MXFP4 values. Returns the blocks and scales."""
    rng = np.random.default_rng(seed + 2_000_000)
    stored = {}
    for name, parameter in model.named_parameters():
        if not name.endswith(("gate_up_proj", "down_proj")):
            continue
        experts, inputs, outputs = parameter.shape
        blocks = rng.integers(0, 256, (experts, outputs, inputs // 32, 16), np.uint8)
        scales = rng.integers(122, 126, (experts, outputs, inputs // 32), np.uint8)
        blocks, scales = torch.from_numpy(blocks), torch.from_numpy(scales)
        parameter.copy_(convert_moe_packed_tensors(blocks, scales, dtype=torch.float32))
        stored |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
    return stored


def save_mxfp4(model, stored, folder):
    """Saves like the published gpt-oss checkpoints: experts in MXFP4, the rest in bfloat16."""
    model.config.quantization_config = {
        "quant_method": "mxfp4",
        "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                   "model.embed_tokens", "lm_head"]}
    model.config.dtype = BF16
    model.config.architectures = ["GptOssForCausalLM"]
    model.config.save_pretrained(folder)
    tensors = {name: value.to(BF16).contiguous() for name, value in model.state_dict().items()
               if f"{name}_blocks" not in stored}
    save_file(tensors | stored, folder / "model.safetensors", metadata={"format": "pt"})
