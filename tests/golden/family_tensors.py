"""Names of tensors and keys in GGUF, for models that transformers 5 holds in memory."""

import re

import gguf
import numpy as np

import golden_common as common

INTERLEAVED_BY_CONVERTER = ("llama", "granite", "granitemoe", "smollm3")
NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "self_attn.query_layernorm": "attn_q_norm",
    "self_attn.key_layernorm": "attn_k_norm", "post_attention_layernorm": "ffn_norm",
    "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
    "post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "mlp.gate_up_proj": "ffn_up", "mlp.gate": "ffn_gate_inp", "mlp.router": "ffn_gate_inp",
    "mlp.gate.wg": "ffn_gate_inp", "block_sparse_moe.router": "ffn_gate_inp",
    "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
    "mlp.gate.moe_statics.e_score_correction_bias": "exp_probs_b.bias",
    "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b", "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "shared_mlp.output_linear": "ffn_down_shexp", "self_attn.sinks": "attn_sinks.weight",
}
DELTA_NAMES = {
    "in_proj_qkv": "attn_qkv.weight", "in_proj_z": "attn_gate.weight",
    "in_proj_b": "ssm_beta.weight", "in_proj_a": "ssm_alpha.weight", "in_proj_ba": "ssm_ba.weight",
    "conv1d": "ssm_conv1d.weight", "dt_bias": "ssm_dt.bias", "A_log": "ssm_a",
    "norm": "ssm_norm.weight", "out_proj": "ssm_out.weight"}
LFM2_NAMES = {
    "operator_norm": "attn_norm", "ffn_norm": "ffn_norm", "conv.in_proj": "shortconv.in_proj",
    "conv.conv": "shortconv.conv", "conv.out_proj": "shortconv.out_proj",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.out_proj": "attn_output", "self_attn.q_layernorm": "attn_q_norm",
    "self_attn.k_layernorm": "attn_k_norm", "feed_forward.w1": "ffn_gate",
    "feed_forward.w3": "ffn_up", "feed_forward.w2": "ffn_down",
    "feed_forward.gate": "ffn_gate_inp"}
for part in ("gate", "up", "down"):
    for shared in ("mlp.shared_experts", "mlp.shared_mlp", "mlp.shared_expert"):
        NAMES[f"{shared}.{part}_proj"] = f"ffn_{part}_shexp"


def is_router(name):
    return name.endswith(("mlp.gate.weight", "router.weight", "wg.weight", "feed_forward.gate.weight"))


def has_offset_norms(arch):
    """Returns whether norms in transformers, except those of delta nets, multiply by 1 + weight."""
    return arch.startswith(("gemma", "qwen3next", "qwen35"))


def is_matrix(name, shape):
    """Returns whether the file stores a parameter in bfloat16. Routers and convolutions stay
    float32."""
    router = is_router(name) or "conv1d" in name or name.endswith("conv.conv.weight")
    return len(shape) > 1 and not router and "bias" not in name


def post_attention_name(arch):
    """Returns the norm that transformers calls post_attention_layernorm."""
    after_branch = ("gemma2", "gemma3", "olmo2")
    other_name = ("glm4moe", "seed_oss", "gpt-oss", "qwen3next", "qwen35", "qwen35moe")
    return "post_attention_norm" if arch in after_branch + other_name else "ffn_norm"


def expert_tensors(arch, blk, name, values):
    """Yields the tensors of stacked experts. gpt-oss interleaves gate and up, and transposes."""
    if name in ("gate_up_proj", "gate_up_proj_bias"):
        if arch == "gpt-oss":
            values = values.swapaxes(1, 2) if name == "gate_up_proj" else values
            gate, up = values[:, ::2], values[:, 1::2]
        else:
            half = values.shape[1] // 2
            gate, up = values[:, :half], values[:, half:]
        kind = "bias" if name.endswith("bias") else "weight"
        yield f"{blk}ffn_gate_exps.{kind}", gate
        yield f"{blk}ffn_up_exps.{kind}", up
    elif name == "down_proj":
        yield blk + "ffn_down_exps.weight", values.swapaxes(1, 2) if arch == "gpt-oss" else values
    else:
        yield blk + "ffn_down_exps.bias", values


def tiled_heads(config, values, axis, first=0):
    """Returns the V heads from `first` on, in the order of qwen35: the first V head of all K heads,
    then the second. transformers stores the V heads of each K head together."""
    values = np.moveaxis(values, axis, 0)
    of_each = config.linear_num_value_heads // config.linear_num_key_heads
    heads = values[first:].reshape(config.linear_num_key_heads, of_each, -1, *values.shape[1:])
    heads = heads.swapaxes(0, 1).reshape(-1, *values.shape[1:])
    return np.moveaxis(np.concatenate([values[:first], heads]), 0, axis)


def split_qkvz(config, values):
    """Returns the rows of q, k and v, and those of z, of a tensor that is fused for each K head."""
    heads = values.reshape(config.linear_num_key_heads, -1, values.shape[-1])
    k_dim = config.linear_key_head_dim
    v_rows = heads.shape[1] // 2 - k_dim
    parts = np.split(heads, [k_dim, 2 * k_dim, 2 * k_dim + v_rows], axis=1)
    q, k, v, z = (part.reshape(-1, values.shape[-1]) for part in parts)
    return np.concatenate([q, k, v]), z


def delta_tensors(arch, config, blk, module, values, fused):
    """Yields the tensors of a gated delta net."""
    k_size = 2 * config.linear_num_key_heads * config.linear_key_head_dim
    if module == "A_log":
        values = -np.exp(values)
    if module == "conv1d":
        values = values[:, 0]
    if arch.startswith("qwen35"):
        if module in ("in_proj_qkv", "conv1d"):
            values = tiled_heads(config, values, 0, k_size)
        elif module == "out_proj":
            values = tiled_heads(config, values, 1)
        elif module != "norm":
            values = tiled_heads(config, values, 0)
    if module == "in_proj_qkvz" and fused:
        yield blk + "ssm_in.weight", values
    elif module == "in_proj_qkvz":
        qkv, z = split_qkvz(config, values)
        yield blk + "attn_qkv.weight", qkv
        yield blk + "attn_gate.weight", z
    else:
        yield blk + DELTA_NAMES[module], values


def lfm2_tensors(blk, inner, values):
    module, _, kind = inner.rpartition(".")
    if inner == "feed_forward.expert_bias":
        yield blk + "exp_probs_b.bias", values
    elif "experts." in inner:
        yield from expert_tensors("lfm2moe", blk, kind, values)
    else:
        yield f"{blk}{LFM2_NAMES[module]}.{kind}", values[:, 0] if module == "conv.conv" else values


def layer_tensors(arch, config, blk, inner, values, fused):
    module, _, kind = inner.rpartition(".")
    if inner.startswith("linear_attn."):
        name = inner.removeprefix("linear_attn.").removesuffix(".weight")
        yield from delta_tensors(arch, config, blk, name, values, fused)
    elif arch.startswith("lfm2"):
        yield from lfm2_tensors(blk, inner, values)
    elif module == "mlp.shared_expert_gate":
        yield blk + "ffn_gate_inp_shexp.weight", values.reshape(-1)
    elif "experts." in inner and "shared" not in inner:
        yield from expert_tensors(arch, blk, kind, values)
    elif module == "self_attn.kv_b_proj":
        heads = values.reshape(config.num_attention_heads, -1, config.kv_lora_rank)
        yield blk + "attn_k_b.weight", heads[:, :config.qk_nope_head_dim].swapaxes(1, 2)
        yield blk + "attn_v_b.weight", heads[:, config.qk_nope_head_dim:]
    elif module == "shared_mlp.input_linear":
        half = values.shape[0] // 2
        yield blk + "ffn_gate_shexp.weight", values[:half]
        yield blk + "ffn_up_shexp.weight", values[half:]
    elif inner in NAMES:
        yield blk + NAMES[inner], values.reshape(-1)
    else:
        if arch in INTERLEAVED_BY_CONVERTER and module.endswith(("q_proj", "k_proj")):
            heads = (config.num_attention_heads if module.endswith("q_proj")
                     else config.num_key_value_heads)
            values = common.permute_qk(values, heads)
        if has_offset_norms(arch) and "norm" in module:
            values = values + 1
        name = (post_attention_name(arch) if module == "post_attention_layernorm"
                and arch != "glm4" else NAMES[module])
        yield f"{blk}{name}.{kind}", values


def gguf_tensors(arch, config, state, fused=False):
    """Yields (GGUF name, float32 array). If `fused`, delta nets have the older, fused tensors."""
    rope = config.rope_parameters
    for name, tensor in state.items():
        values = tensor.numpy()
        found = re.fullmatch(r"model\.layers\.(\d+)\.(.*)", name)
        if found:
            yield from layer_tensors(arch, config, f"blk.{found[1]}.", found[2], values, fused)
        elif name == "model.embed_tokens.weight":
            yield "token_embd.weight", values
        elif name == "model.norm.weight":
            yield "output_norm.weight", values + (1 if has_offset_norms(arch) else 0)
        elif name == "model.embedding_norm.weight":
            yield "token_embd_norm.weight", values
        elif name == "lm_head.weight" and not getattr(config, "tie_word_embeddings", False):
            yield "output.weight", values
    if rope.get("rope_type") == "longrope":
        yield "rope_factors_long.weight", np.array(rope["long_factor"], np.float32)
        yield "rope_factors_short.weight", np.array(rope["short_factor"], np.float32)


def add_rope(writer, arch, config, head_dim):
    """Rotary keys. Window layers have their own in Gemma 3."""
    rope = config.rope_parameters
    local = rope.get("sliding_attention")
    rope = rope.get("full_attention", rope)
    writer.add_rope_dimension_count(int(head_dim * rope.get("partial_rotary_factor", 1)))
    writer.add_rope_freq_base(rope["rope_theta"])
    if "mrope_section" in rope:
        writer.add_rope_dimension_sections([*rope["mrope_section"], 0])
    if arch.startswith("qwen3vl"):
        writer.add_num_deepstack_layers(1)
    if local and arch == "gemma3":
        writer.add_rope_freq_base_swa(local["rope_theta"])
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    elif rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
        writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
        if "mscale_all_dim" in rope:
            writer.add_rope_scaling_yarn_log_mul(0.1 * rope["mscale_all_dim"])
    elif rope["rope_type"] == "longrope":
        scale = config.max_position_embeddings / rope["original_max_position_embeddings"]
        writer.add_rope_scaling_attn_factors(
            float(np.sqrt(1 + np.log(scale) / np.log(rope["original_max_position_embeddings"]))))
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])


def add_experts(writer, arch, config):
    """Keys about experts, as each family's converter writes them."""
    get = lambda *names: next((v for n in names if (v := getattr(config, n, None)) is not None), None)
    experts = get("moe_num_experts", "n_routed_experts", "num_local_experts", "num_experts")
    if not experts or arch in ("hunyuan-dense",):
        return
    used = get("moe_k", "moe_topk", "num_experts_per_tok")
    writer.add_expert_count(experts)
    writer.add_expert_used_count(used)
    width = get("moe_intermediate_size")
    if arch == "gpt-oss":
        width = config.intermediate_size
    if arch == "hunyuan-moe":
        width = config.intermediate_size
        writer.add_expert_shared_feed_forward_length(config.intermediate_size)
        writer.add_expert_shared_count(1)
    if width and arch not in ("olmoe", "granitemoe"):
        writer.add_expert_feed_forward_length(width)
    if arch in ("qwen3next", "qwen35moe"):
        writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)
    if arch == "lfm2moe":
        writer.add_leading_dense_block_count(config.num_dense_layers)
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    if arch == "granitemoe" and get("shared_intermediate_size"):
        writer.add_expert_shared_feed_forward_length(config.shared_intermediate_size)
    if arch in ("glm4moe", "dots1", "deepseek2"):
        writer.add_expert_shared_count(config.n_shared_experts)
        writer.add_leading_dense_block_count(config.first_k_dense_replace)
        softmax = config.model_type == "deepseek_v2"
        kinds = gguf.ExpertGatingFuncType
        writer.add_expert_gating_func(kinds.SOFTMAX if softmax else kinds.SIGMOID)
        writer.add_expert_weights_scale(config.routed_scaling_factor)
        writer.add_expert_weights_norm(config.norm_topk_prob)
        writer.add_expert_group_count(config.n_group)
        writer.add_expert_group_used_count(config.topk_group)
    if arch == "ernie4_5-moe":
        writer.add_interleave_moe_layer_step(config.moe_layer_interval)
        writer.add_leading_dense_block_count(config.moe_layer_start_index)
        writer.add_expert_shared_count(config.moe_num_shared_experts)
        writer.add_expert_shared_feed_forward_length(
            config.moe_num_shared_experts * config.moe_intermediate_size)


def add_windows(writer, arch, config):
    window = getattr(config, "sliding_window", None)
    if arch == "phi3":
        writer.add_sliding_window(window or 0)
    elif window and arch in ("gemma2", "gemma3", "gpt-oss"):
        writer.add_sliding_window(window)
    elif window and arch == "olmo2" and config.model_type == "olmo3":
        writer.add_sliding_window(window)
        writer.add_sliding_window_pattern([t == "sliding_attention" for t in config.layer_types])


def add_mixers(writer, arch, config):
    """Keys of layers without attention."""
    attention = [kind == "full_attention" for kind in getattr(config, "layer_types", None) or []]
    if arch.startswith("lfm2"):
        writer.add_head_count_kv([config.num_key_value_heads if a else 0 for a in attention])
        writer.add_shortconv_l_cache(config.conv_L_cache)
    elif arch in ("qwen3next", "qwen35", "qwen35moe"):
        writer.add_ssm_conv_kernel(config.linear_conv_kernel_dim)
        writer.add_ssm_state_size(config.linear_key_head_dim)
        writer.add_ssm_group_count(config.linear_num_key_heads)
        writer.add_ssm_time_step_rank(config.linear_num_value_heads)
        writer.add_ssm_inner_size(config.linear_num_value_heads * config.linear_value_head_dim)
        if attention == [(i + 1) % 4 == 0 for i in range(len(attention))]:
            writer.add_full_attention_interval(4)
        else:
            writer.add_array(f"{arch}.attention.recurrent_layers", [not a for a in attention])


def add_mla(writer, config):
    stored = config.kv_lora_rank + config.qk_rope_head_dim
    writer.add_head_count_kv(1)
    writer.add_key_length(stored)
    writer.add_value_length(config.kv_lora_rank)
    writer.add_key_length_mla(config.qk_nope_head_dim + config.qk_rope_head_dim)
    writer.add_value_length_mla(config.v_head_dim)
    writer.add_kv_lora_rank(config.kv_lora_rank)
    if config.q_lora_rank:
        writer.add_q_lora_rank(config.q_lora_rank)


def add_keys(writer, arch, config, name):
    mla = arch == "deepseek2"
    head_dim = config.qk_rope_head_dim if mla else (getattr(config, "head_dim", None)
                or config.hidden_size // config.num_attention_heads)
    writer.add_name(f"tiny {name}")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    if mla:
        add_mla(writer, config)
    elif not arch.startswith("lfm2"):
        writer.add_head_count_kv(config.num_key_value_heads)
    add_mixers(writer, arch, config)
    if not mla and head_dim != config.hidden_size // config.num_attention_heads:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(getattr(config, "norm_eps", None) or config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    add_rope(writer, arch, config, head_dim)
    add_experts(writer, arch, config)
    add_windows(writer, arch, config)
    scalar = getattr(config, "query_pre_attn_scalar", None)
    if scalar and scalar != head_dim:
        writer.add_attention_scale(scalar ** -0.5)
    if arch == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if arch.startswith("granite"):
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)
