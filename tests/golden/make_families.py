#!/usr/bin/env python3
"""Makes tests/golden/families: a small random GGUF model of each family, with reference logits.

    python3 make_families.py [--out families] [--only NAME ...] [--big]

transformers builds each model in float32 with odd sizes. No norm, bias or gate is neutral. The script rounds the parameters to the type of the file (buffers such as rotary
tables stay as they are) and writes the file with the keys and the tensor names that llama.cpp's
converter writes. The reference logits are those of the rounded model. A seed is accepted if float64
gives nearly the same logits, which excludes near-ties in routers. --big makes larger models, for
checks by hand.
"""

import dataclasses
import pathlib

import gguf
import numpy as np
import torch
import transformers

import family_tensors
import golden_common as common

HERE = pathlib.Path(__file__).resolve().parent
TOKENS = 45
MAX_ERROR = 6e-5
BIG = {"hidden_size": 80, "head_dim": 16, "num_hidden_layers": 5, "intermediate_size": 96,
       "vocab_size": 263}
LONG = {"rope_type": "longrope", "rope_theta": 10000.0, "factor": 4.0,
        "original_max_position_embeddings": 32,
        "short_factor": [1.0, 1.1, 1.3, 1.5], "long_factor": [1.0, 2.0, 3.0, 4.0]}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "beta_fast": 32.0,
        "beta_slow": 1.0, "original_max_position_embeddings": 32}
GEMMA3_ROPE = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
    "full_attention": {"rope_type": "linear", "rope_theta": 20000.0, "factor": 2.5}}


@dataclasses.dataclass(frozen=True)
class Spec:
    """One model. `family` is the prefix of transformers' classes."""

    name: str
    family: str
    arch: str
    config: dict = dataclasses.field(default_factory=dict)
    fused: bool = False  # the delta nets have the older, fused tensors
    vision: dict | None = None  # the settings of the other half of a multimodal model


MOE = {"num_experts": 6, "num_experts_per_tok": 2}
SIGMOID_MOE = {
    "n_routed_experts": 6, "num_local_experts": 6, "num_experts_per_tok": 2,
    "moe_intermediate_size": 24, "n_shared_experts": 2, "first_k_dense_replace": 1, "n_group": 1,
    "topk_group": 1, "routed_scaling_factor": 1.7, "norm_topk_prob": True}
MLA = SIGMOID_MOE | {"kv_lora_rank": 24, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8,
                     "v_head_dim": 10, "num_key_value_heads": 5}
MULTIPLIERS = {"embedding_multiplier": 5.5, "residual_multiplier": 0.3, "logits_scaling": 1.75,
               "attention_multiplier": 0.21}
# llama.cpp requires heads of equal size for keys and values. qwen35moe below has others.
DELTA_NET = {
    "num_hidden_layers": 5, "head_dim": 12, "partial_rotary_factor": 0.5,
    "tie_word_embeddings": False, "linear_num_key_heads": 2, "linear_num_value_heads": 6,
    "linear_key_head_dim": 12, "linear_value_head_dim": 12, "linear_conv_kernel_dim": 4}
QWEN3NEXT = DELTA_NET | MOE | {
    "moe_intermediate_size": 16, "shared_expert_intermediate_size": 20, "norm_topk_prob": True}
MROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 1],
         "mrope_interleaved": True}
VISION = {"depth": 1, "hidden_size": 8, "intermediate_size": 8, "num_heads": 2, "patch_size": 4}
LFM2 = {"num_hidden_layers": 4, "norm_eps": 1e-5, "conv_L_cache": 3,
        "layer_types": ["conv", "conv", "full_attention", "conv"]}
SPECS = (
    Spec("qwen2vl", "Qwen2_5_VL", "qwen2vl", vision=VISION | {"out_hidden_size": 40}, config={
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                            "mrope_section": [1, 1, 2]}}),
    Spec("qwen3vl", "Qwen3VL", "qwen3vl",
         {"head_dim": 12, "tie_word_embeddings": False,
          "rope_parameters": MROPE | {"mrope_section": [2, 2, 2]}},
         vision=VISION | {"out_hidden_size": 40, "deepstack_visual_indexes": [0]}),
    Spec("qwen3vlmoe", "Qwen3VLMoe", "qwen3vlmoe",
         MOE | {"head_dim": 12, "moe_intermediate_size": 24, "tie_word_embeddings": False,
                "rope_parameters": MROPE | {"mrope_section": [2, 2, 2]}},
         vision=VISION | {"out_hidden_size": 40, "deepstack_visual_indexes": [0]}),
    Spec("qwen3next", "Qwen3Next", "qwen3next", QWEN3NEXT),
    Spec("qwen3next_fused", "Qwen3Next", "qwen3next",
         QWEN3NEXT | {"num_hidden_layers": 2, "linear_conv_kernel_dim": 3,
                      "layer_types": ["linear_attention", "full_attention"]}, fused=True),
    Spec("qwen35", "Qwen3_5", "qwen35", DELTA_NET | {"rope_parameters": MROPE}),
    Spec("qwen35moe", "Qwen3_5Moe", "qwen35moe",
         QWEN3NEXT | {"rope_parameters": MROPE, "linear_value_head_dim": 14,
                      "num_hidden_layers": 3, "linear_conv_kernel_dim": 2,
                      "layer_types": ["full_attention", "linear_attention",
                                      "linear_attention"]}),
    Spec("lfm2", "Lfm2", "lfm2", LFM2 | {"block_auto_adjust_ff_dim": False}),
    Spec("lfm2moe", "Lfm2Moe", "lfm2moe",
         LFM2 | MOE | {"moe_intermediate_size": 24, "num_dense_layers": 1, "conv_L_cache": 4,
                       "use_expert_bias": True}),
    Spec("olmoe", "Olmoe", "olmoe", MOE | {"intermediate_size": 24, "norm_topk_prob": False}),
    Spec("olmo2", "Olmo2", "olmo2"),
    Spec("olmo3", "Olmo3", "olmo2", {"sliding_window": 9, "rope_parameters": YARN,
                                     "num_hidden_layers": 5}),
    Spec("granite", "Granite", "granite", MULTIPLIERS | {"attention_bias": True,
                                                         "mlp_bias": True}),
    Spec("granitemoe", "GraniteMoe", "granitemoe",
         MULTIPLIERS | {"num_local_experts": 6, "num_experts_per_tok": 2,
                        "intermediate_size": 24}),
    Spec("granitemoeshared", "GraniteMoeShared", "granitemoe",
         MULTIPLIERS | {"num_local_experts": 6, "num_experts_per_tok": 2,
                        "intermediate_size": 24, "shared_intermediate_size": 28}),
    Spec("phi3", "Phi3", "phi3", {"sliding_window": 17, "partial_rotary_factor": 0.5,
                                  "original_max_position_embeddings": 128}),
    Spec("phi3_long", "Phi3", "phi3", {"rope_parameters": LONG, "sliding_window": None,
                                       "original_max_position_embeddings": 32}),
    Spec("phi3_short", "Phi3", "phi3",
         {"rope_parameters": LONG | {"original_max_position_embeddings": 64, "factor": 2.0},
          "sliding_window": None, "original_max_position_embeddings": 64}),
    Spec("smollm3", "SmolLM3", "smollm3", {"num_hidden_layers": 5}),
    Spec("gemma", "Gemma", "gemma", {"head_dim": 12}),
    Spec("gemma2", "Gemma2", "gemma2",
         {"head_dim": 12, "query_pre_attn_scalar": 20, "attn_logit_softcapping": 2.5,
          "final_logit_softcapping": 6.0, "sliding_window": 9}),
    Spec("gemma3", "Gemma3", "gemma3",
         {"head_dim": 12, "query_pre_attn_scalar": 11, "sliding_window": 9,
          "rope_parameters": GEMMA3_ROPE, "num_hidden_layers": 7}),
    Spec("glm4", "Glm4", "glm4", {"head_dim": 16, "attention_bias": True,
                                  "partial_rotary_factor": 0.5}),
    Spec("glm4moe", "Glm4Moe", "glm4moe",
         SIGMOID_MOE | {"head_dim": 16, "attention_bias": True, "use_qk_norm": True,
                        "partial_rotary_factor": 0.5}),
    Spec("glm4moe_plain", "Glm4Moe", "glm4moe",
         SIGMOID_MOE | {"head_dim": 16, "attention_bias": True, "use_qk_norm": False,
                        "n_group": 3, "topk_group": 2, "partial_rotary_factor": 0.5}),
    Spec("dots1", "Dots1", "dots1", SIGMOID_MOE | {"head_dim": 16}),
    Spec("ernie4_5", "Ernie4_5", "ernie4_5", {"head_dim": 12, "use_bias": True}),
    Spec("ernie4_5_moe", "Ernie4_5_Moe", "ernie4_5-moe",
         {"moe_num_experts": 6, "moe_k": 2, "moe_intermediate_size": 24,
          "moe_num_shared_experts": 2, "moe_layer_start_index": 1, "moe_layer_interval": 2,
          "moe_layer_end_index": 3, "num_hidden_layers": 4, "use_bias": False}),
    Spec("hunyuan_dense", "HunYuanDenseV1", "hunyuan-dense", {"head_dim": 16}),
    Spec("hunyuan_moe", "HunYuanMoEV1", "hunyuan-moe",
         {"head_dim": 16, "num_experts": 6, "moe_topk": 2, "num_experts_per_tok": 2}),
    Spec("seed_oss", "SeedOss", "seed_oss", {"head_dim": 16, "attention_bias": True,
                                             "attention_out_bias": True, "mlp_bias": True}),
    Spec("deepseek_v2", "DeepseekV2", "deepseek2",
         MLA | {"q_lora_rank": None, "topk_method": "group_limited_greedy", "n_group": 3,
                "topk_group": 2, "norm_topk_prob": False}),
    Spec("deepseek_v3", "DeepseekV3", "deepseek2",
         MLA | {"q_lora_rank": 22, "n_group": 3, "topk_group": 2, "rope_parameters": YARN | {
             "mscale": 0.8, "mscale_all_dim": 0.8}}),
    Spec("gpt_oss", "GptOss", "gpt-oss",
         {"head_dim": 16, "num_local_experts": 6, "num_experts_per_tok": 2,
          "intermediate_size": 32, "sliding_window": 9, "rope_parameters": YARN | {
              "truncate": False, "rope_theta": 150.0}}),
)


def build_model(spec, big):
    settings = {
        "vocab_size": 67, "hidden_size": 40, "intermediate_size": 36,
        "num_hidden_layers": 3, "num_attention_heads": 5, "num_key_value_heads": 1,
        "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
        "attn_implementation": "eager", "experts_implementation": "eager",
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "bos_token_id": None, "eos_token_id": 65, "pad_token_id": 66,
    }
    if big:
        settings |= BIG
        if spec.arch == "deepseek2":
            settings.pop("head_dim")
    settings |= {k: v for k, v in spec.config.items() if not (big and k == "head_dim")}
    if "norm_eps" in settings:
        settings.pop("rms_norm_eps")
    partial = settings.pop("partial_rotary_factor", None)
    if partial:
        settings["rope_parameters"] = settings["rope_parameters"] | {
            "partial_rotary_factor": partial}
    if spec.vision:
        config = getattr(transformers, spec.family + "Config")(
            text_config=settings, vision_config=spec.vision, attn_implementation="eager",
            experts_implementation="eager", tie_word_embeddings=settings["tie_word_embeddings"])
        return getattr(transformers, spec.family + "ForConditionalGeneration")(config).float().eval()
    text = "Text" if spec.family in ("Gemma3", "Qwen3_5", "Qwen3_5Moe") else ""
    config = getattr(transformers, spec.family + text + "Config")(**settings)
    return getattr(transformers, spec.family + "ForCausalLM")(config).float().eval()


def randomise(model, spec, seed):
    """Random parameters, rounded to bfloat16 where the file stores that."""
    rng = np.random.default_rng(seed)
    tied = model.config.tie_word_embeddings
    biases = [(name, buffer) for name, buffer in model.named_buffers()
              if name.endswith(("e_score_correction_bias", "expert_bias"))]
    done = set()
    for name, parameter in [*model.named_parameters(), *biases]:
        if name in done:
            continue
        done.add(name)
        shape = tuple(parameter.shape)
        if "norm" in name:
            offset = (family_tensors.has_offset_norms(spec.arch)
                      and not name.endswith("linear_attn.norm.weight"))
            values = rng.uniform(0.6, 1.7, shape) - (1 if offset else 0)
        elif name.endswith("A_log"):
            values = rng.uniform(-2.5, 0.5, shape)
        elif name.endswith(("e_score_correction_bias", "expert_bias")):
            values = rng.normal(-0.1, 0.2, shape)
        elif name.endswith("bias"):
            values = rng.normal(0.0, 0.5, shape)
        elif name.endswith("sinks"):
            values = rng.normal(0.5, 1.0, shape)
        elif name.endswith(".embed_tokens.weight"):
            values = rng.normal(0.0, 0.4 if tied else 1.0, shape)
        elif name == "lm_head.weight":
            values = rng.normal(0.0, 3 / np.sqrt(shape[-1]), shape)
        else:
            router = family_tensors.is_router(name)
            values = rng.normal(0.0, (2.0 if router else 1.3) / np.sqrt(shape[-1]), shape)
        tensor = torch.from_numpy(np.asarray(values, np.float32))
        if family_tensors.is_matrix(name, shape):
            tensor = tensor.bfloat16().float()
        parameter.copy_(tensor)


def try_seed(spec, seed, ids, big):
    model = build_model(spec, big)
    randomise(model, spec, seed)
    logits = common.all_logits(model, ids)
    state = {name.replace("model.language_model.", "model."): value.clone()
             for name, value in [*model.named_parameters(), *model.named_buffers()]}
    exact = common.all_logits(model.double(), ids)
    error = float(np.abs(exact - logits).max())
    config = model.config.text_config if spec.vision else model.config
    return (config, state, logits, error) if error <= MAX_ERROR else None


def write_gguf(path, spec, config, state):
    writer = gguf.GGUFWriter(path, spec.arch)
    family_tensors.add_keys(writer, spec.arch, config, spec.name)
    # One token for each of the first bytes. Tests use token ids.
    tokens = [f"<0x{i:02X}>" for i in range(config.vocab_size)]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types([gguf.TokenType.BYTE] * len(tokens))
    writer.add_eos_token_id(65)
    writer.add_add_bos_token(False)
    for name, values in family_tensors.gguf_tensors(spec.arch, config, state, spec.fused):
        values = np.ascontiguousarray(values, np.float32)
        if values.ndim > 1 and not name.endswith((".bias", "ffn_gate_inp.weight", "ssm_conv1d.weight",
                                                  "shortconv.conv.weight")):
            kind = gguf.GGMLQuantizationType.BF16
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make_one(spec, out, big):
    ids = [int(i) for i in np.random.default_rng(7).integers(0, 65, TOKENS)]
    for seed in range(200):
        found = try_seed(spec, seed, ids, big)
        if found:
            break
    else:
        raise SystemExit(f"{spec.name}: no seed without near-ties")
    config, state, logits, error = found
    path = out / f"{spec.name}.gguf"
    write_gguf(path, spec, config, state)
    common.save_npy(out / f"{spec.name}.npy", logits.astype("<f4"))
    common.save_json(out / f"{spec.name}.json", {
        "model": path.name, "seed": seed, "ids": ids, "logits": f"{spec.name}.npy",
        "versions": common.versions(("numpy", "torch", "transformers", "gguf"))})
    print(f"{spec.name}: seed {seed}, {path.stat().st_size} bytes, float32 error {error:.1e}, "
          f"logit std {logits.std():.2f}")


def main():
    parser = common.make_parser(__doc__)
    parser.add_argument("--out", default=HERE / "families", type=pathlib.Path)
    parser.add_argument("--only", nargs="*", metavar="NAME", help="names of models; default: all")
    parser.add_argument("--big", action="store_true", help="larger models")
    args = parser.parse_args()
    common.setup_torch()
    args.out.mkdir(parents=True, exist_ok=True)
    for spec in SPECS:
        sized = args.big and "long_factor" in spec.config.get("rope_parameters", {})
        if not sized and (not args.only or spec.name in args.only):
            make_one(spec, args.out, args.big)


if __name__ == "__main__":
    main()
