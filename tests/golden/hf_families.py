"""The model families of make_hf.py that are saved without a tokenizer, and their special
properties."""

import dataclasses
import json

import numpy as np
import torch
from safetensors.torch import load_file, save_file
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
    mtp: bool = False  # with a draft layer, which transformers does not make
    fused: bool = False  # with all experts of a layer in one tensor, as published
    transposed: bool = False  # with the experts' matrices transposed, as published
    converter: bool = True  # llama.cpp's converter reads the directory
    vision: dict | None = None  # the settings of the other half of a multimodal model
    flat: bool = False  # as published, without text_config
    config: dict = dataclasses.field(default_factory=dict)


# Gated delta nets. llama.cpp requires heads of equal size for keys and values.
DELTA_NET = {"head_dim": 12, "partial_rotary_factor": 0.5, "linear_num_key_heads": 2,
             "linear_num_value_heads": 6, "linear_key_head_dim": 12, "linear_value_head_dim": 12,
             "rms_norm_eps": 1e-6, "tie_word_embeddings": False}
DELTA_MOE = DELTA_NET | EXPERTS | {"num_experts": 6, "shared_expert_intermediate_size": 20}
MROPE = DEFAULT | {"partial_rotary_factor": 0.5, "mrope_section": [1, 1, 1],
                   "mrope_interleaved": True}
RECURRENT, ATTENTION = "linear_attention", "full_attention"
QWEN_VISION = {"depth": 1, "hidden_size": 8, "intermediate_size": 8, "num_heads": 2,
               "patch_size": 4, "num_position_embeddings": 4, "out_hidden_size": 40}
QWEN2_VISION = {"depth": 1, "embed_dim": 8, "hidden_size": 40, "mlp_ratio": 1, "num_heads": 2,
                "patch_size": 4}
WHOLE_MROPE = DEFAULT | {"mrope_section": [1, 1, 2]}
QWEN3_VL = {"head_dim": 12, "rope_parameters": WHOLE_MROPE | {
    "mrope_section": [2, 2, 2], "mrope_interleaved": True}}
LFM2 = {"layer_types": ["conv", "conv", ATTENTION, "conv"], "num_hidden_layers": 4,
        "norm_eps": 1e-5}

# Gemma 3 with images: the text model's settings are in text_config.
VISION = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
          "num_attention_heads": 2, "image_size": 8, "patch_size": 4}
SMALL = {"hidden_size": 40, "intermediate_size": 28, "num_hidden_layers": 3, "eos_token_id": 58,
         "pad_token_id": 57, "rope_parameters": DEFAULT}
FAMILIES = (
    FamilySpec("qwen3_next", "Qwen3Next", mtp=True, config=DELTA_MOE | {
        "norm_topk_prob": True, "linear_key_head_dim": 10, "linear_value_head_dim": 14,
        "linear_conv_kernel_dim": 3, "layer_types": [RECURRENT, ATTENTION, RECURRENT]}),
    FamilySpec("qwen3_5", "Qwen3_5", vision=QWEN_VISION, mtp=True, config=DELTA_NET | {
        "rope_parameters": MROPE, "layer_types": [RECURRENT, ATTENTION, RECURRENT]}),
    FamilySpec("qwen3_5_text", "Qwen3_5Text", config=DELTA_NET | {
        "rope_parameters": MROPE, "layer_types": [ATTENTION, RECURRENT, RECURRENT],
        "tie_word_embeddings": True}),
    FamilySpec("qwen3_5_moe", "Qwen3_5Moe", vision=QWEN_VISION, fused=True,
               config=DELTA_MOE | {"rope_parameters": MROPE, "num_hidden_layers": 4}),
    FamilySpec("qwen3_5_moe_text", "Qwen3_5MoeText", config=DELTA_MOE | {
        "rope_parameters": MROPE, "linear_num_key_heads": 6,
        "layer_types": [RECURRENT, ATTENTION, RECURRENT]}),
    FamilySpec("qwen2_vl", "Qwen2VL", vision=QWEN2_VISION, config={
        "rope_parameters": WHOLE_MROPE, "num_hidden_layers": 2}),
    FamilySpec("qwen2_vl_flat", "Qwen2VL", vision=QWEN2_VISION, flat=True, config={
        "rope_parameters": WHOLE_MROPE, "tie_word_embeddings": False}),
    FamilySpec("qwen2_5_vl", "Qwen2_5_VL", vision=QWEN_VISION, config={
        "rope_parameters": WHOLE_MROPE}),
    FamilySpec("qwen3_vl", "Qwen3VL", vision=QWEN_VISION | {"deepstack_visual_indexes": [0]},
               config=QWEN3_VL | {"attention_bias": True}),
    FamilySpec("qwen3_vl_moe", "Qwen3VLMoe", transposed=True,
               vision=QWEN_VISION | {"deepstack_visual_indexes": [0]},
               config=EXPERTS | QWEN3_VL | {
                   "num_experts": 6, "attention_bias": True, "tie_word_embeddings": False}),
    # As transformers 5 saves it. The matrices of gate_up_proj are square.
    FamilySpec("qwen3_vl_moe_saved", "Qwen3VLMoe", converter=False,
               vision=QWEN_VISION | {"deepstack_visual_indexes": [0], "out_hidden_size": 24},
               config=EXPERTS | QWEN3_VL | {
                   "num_experts": 6, "hidden_size": 24, "mlp_only_layers": [0]}),
    FamilySpec("lfm2", "Lfm2", config=LFM2 | {
        "block_ff_dim": 45, "block_multiple_of": 7, "block_ffn_dim_multiplier": 1.1}),
    FamilySpec("lfm2_moe", "Lfm2Moe", config=LFM2 | EXPERTS | {
        "num_experts": 6, "num_dense_layers": 1, "use_expert_bias": True, "norm_topk_prob": True,
        "routed_scaling_factor": 1.0, "conv_L_cache": 4}),
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
    # The norms of the compressed vectors have their own epsilon, and cos and sin are multiplied by
    # a factor.
    FamilySpec("deepseek_v3_plain_yarn", "DeepseekV3", config=EXPERTS | MLA | {
        "q_lora_rank": 20, "n_shared_experts": 1, "n_group": 3, "topk_group": 2,
        "routed_scaling_factor": 2.5, "norm_topk_prob": True, "rms_norm_eps": 0.02,
        "rope_parameters": DEEPSEEK_YARN}),
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
    return name.endswith(("mlp.gate.weight", "router.weight", "gate.wg.weight",
                          "feed_forward.gate.weight"))


def initial_values(name, shape, rng, spec):
    """Returns random values for a parameter that make_hf.randomise does not handle, or None if it
    handles the parameter."""
    if "norm" in name and spec.family.startswith(("Gemma", "Qwen3Next", "Qwen3_5")):
        if not name.endswith("linear_attn.norm.weight"):
            return rng.uniform(-0.4, 0.7, shape)  # used as 1 + w
    if name.endswith("A_log"):
        return rng.uniform(-2.5, 0.5, shape)
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


def fuse_experts(folder):
    """Replaces the experts' tensors of a saved model by gate_up_proj and down_proj of each layer."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    fused = {}
    for name in [name for name in tensors if ".experts." in name]:
        prefix, _, rest = name.partition(".experts.")
        expert, kind, _ = rest.split(".")
        fused.setdefault(prefix, {})[kind, int(expert)] = tensors.pop(name)
    for prefix, parts in fused.items():
        experts = sorted({expert for _, expert in parts})
        stack = lambda kind: torch.stack([parts[kind, expert] for expert in experts])
        tensors[f"{prefix}.experts.gate_up_proj"] = torch.cat([stack("gate_proj"), stack("up_proj")], 1)
        tensors[f"{prefix}.experts.down_proj"] = stack("down_proj")
    save_file(tensors, path, metadata={"format": "pt"})


def transpose_experts(folder):
    """Replaces the fused experts' tensors of a saved model by their transposes."""
    path = folder / "model.safetensors"
    tensors = {name: value.transpose(1, 2).contiguous() if ".experts." in name else value
               for name, value in load_file(path).items()}
    save_file(tensors, path, metadata={"format": "pt"})


def flatten(folder):
    """Gives a saved Qwen2-VL the form of the published ones: without text_config."""
    path = folder / "config.json"
    outer = json.loads(path.read_text())
    text = outer.pop("text_config")
    rope = text.pop("rope_parameters")
    text.pop("layer_types")
    outer.pop("mm_tokens_per_image")
    text |= {"rope_theta": rope["rope_theta"],
             "rope_scaling": {"type": "mrope", "mrope_section": rope["mrope_section"]}}
    path.write_text(json.dumps(text | outer, indent=2) + "\n")


def add_mtp(folder, seed):
    """Adds a draft layer to a saved model. It has the tensors of layer 1, which has attention."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    rng = torch.Generator().manual_seed(seed)
    prefix = next(n for n in tensors if n.endswith("layers.1.input_layernorm.weight"))
    prefix = prefix.removesuffix("input_layernorm.weight")
    hidden = tensors[f"{prefix}input_layernorm.weight"].shape[0]
    shapes = {name.replace(prefix, "mtp.layers.0."): value.shape
              for name, value in tensors.items() if name.startswith(prefix)}
    norms = ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden")
    shapes |= {f"mtp.{name}.weight": (hidden,) for name in norms}
    shapes["mtp.fc.weight"] = (hidden, 2 * hidden)
    mtp = {name: torch.randn(shape, generator=rng).to(BF16) for name, shape in shapes.items()}
    save_file(tensors | mtp, path, metadata={"format": "pt"})
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config.get("text_config", config)["mtp_num_hidden_layers"] = 1
    path.write_text(json.dumps(config, indent=2) + "\n")


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
