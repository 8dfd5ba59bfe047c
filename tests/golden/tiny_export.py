"""Writes a tiny transformers model as a GGUF file: tensors, keys, tokenizer."""

import ctypes
import pathlib

import gguf
import llama_cpp
import numpy as np

import golden_common as common

Q = gguf.GGMLQuantizationType
TYPES = {"f32": Q.F32, "f16": Q.F16, "bf16": Q.BF16, "q8_0": Q.Q8_0, "q4_0": Q.Q4_0, "q4_1": Q.Q4_1}
# The weights "quants": all other quantised types in one file, in two layers. Blocks of 256 need
# rows of hidden size 256; matrices with shorter rows take the types with blocks of 32.
QUANTS = {
    "embed_tokens": (Q.Q6_K,), "lm_head": (Q.Q4_K,),
    "q_proj": (Q.Q4_K, Q.Q2_K), "k_proj": (Q.Q5_K, Q.IQ4_XS), "v_proj": (Q.Q6_K, Q.Q3_K),
    "o_proj": (Q.Q5_0, Q.IQ4_NL), "gate_proj": (Q.Q2_K, Q.Q5_K), "up_proj": (Q.IQ4_XS, Q.Q4_K),
    "experts.gate_up_proj": (Q.Q3_K, Q.Q6_K), "down_proj": (Q.Q5_1, Q.MXFP4),
}
ARCHS = {"llama": "llama", "mistral": "llama", "mixtral": "llama", "qwen2": "qwen2",
         "qwen3": "qwen3", "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe"}
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + "
    "message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
# Pairs in rank order; "_" is the space. Each part of a pair is a byte or an earlier pair.
MERGES = (
    "_ t|h e|i n|_ a|r e|o n|e r|_t he|_ s|a t|_ w|e n|o r|i s|_ c|_ b|a n|o u|e s|_ f|in g|e d|"
    "_ o|_ p|a l|_a n|_an d|i t|_o f|l l|_ h|i c|_ m|a r|_t o|r o|_ i|e l|i on|_ l|s t|_ d|_i s|"
    "y ou"
)

# transformers module (under model.layers.N.) -> GGUF name (under blk.N.)
LAYER_NAMES = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}


def byte_to_text():
    """Returns GPT-2's printable character for each of the 256 byte values."""
    keep = set(range(33, 127)) | set(range(161, 173)) | set(range(174, 256))
    spare = iter(range(256, 512))
    return [chr(b if b in keep else next(spare)) for b in range(256)]


def vocabulary(n_vocab, n_merges):
    """(tokens, types, merges): id b < 256 is byte b, then merges, specials, unused fillers."""
    text = byte_to_text()
    pairs = MERGES.split("|")[:n_merges]
    merges = [tuple(pair.replace("_", text[32]).split(" ")) for pair in pairs]
    tokens = text + ["".join(pair) for pair in merges] + list(SPECIALS)
    fillers = n_vocab - len(tokens)
    if len(merges) != n_merges or fillers < 0 or len(set(tokens)) != len(tokens):
        raise SystemExit(f"a vocabulary of {n_vocab} does not hold {n_merges} merges")
    control, normal = int(gguf.TokenType.CONTROL), int(gguf.TokenType.NORMAL)
    types = [normal] * (256 + n_merges) + [control] * len(SPECIALS)
    types += [int(gguf.TokenType.UNUSED)] * fillers
    tokens += [f"[UNUSED{i}]" for i in range(fillers)]
    return tokens, types, [" ".join(pair) for pair in merges]


def is_matrix(name):
    """Returns whether a parameter has the file's weight type. Norms, biases and routers stay
    F32."""
    if name.endswith(".bias") or "norm" in name:
        return False
    return not name.endswith(("mlp.gate.weight", "shared_expert_gate.weight"))


def type_of(name, ftype):
    """Returns the type that a matrix of the transformers state is stored in."""
    if ftype != "quants":
        return TYPES[ftype]
    module = name.removesuffix(".weight")
    types = next(types for key, types in QUANTS.items() if module.endswith(key))
    layer = int(name.split(".")[2]) if name.startswith("model.layers.") else 0
    return types[layer % len(types)]


def quantize_with_ggml(values, kind):
    """Rows in the types that the gguf package reads but does not write."""
    folder = pathlib.Path(llama_cpp.__file__).parent / "lib"
    quantize = ctypes.CDLL(str(folder / "libggml-base.so")).ggml_quantize_chunk
    quantize.restype = ctypes.c_size_t
    quantize.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + 3 * [ctypes.c_int64] + [
        ctypes.c_void_p]
    block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    columns = values.shape[-1]
    if columns % block:
        raise SystemExit(f"{kind.name}: rows of {columns} are not whole blocks of {block}")
    rows = values.size // columns
    source = np.ascontiguousarray(values, np.float32)
    out = np.zeros((*values.shape[:-1], columns // block * block_bytes), np.uint8)
    written = quantize(int(kind), source.ctypes.data, out.ctypes.data, 0, rows, columns, None)
    if written != out.size:
        raise SystemExit(f"{kind.name}: {written} bytes, expected {out.size}")
    return out


def encode(values, kind):
    """Returns the stored bytes of float32 rows, in the shape that GGUFWriter expects."""
    if kind == Q.F32:
        return values
    try:
        return gguf.quants.quantize(values, kind)
    except NotImplementedError:
        return quantize_with_ggml(values, kind)


def rounded(state, ftype):
    """Returns the weights of the reference model: each matrix is converted to the file's weight
    type and back."""
    out = {}
    for name, values in state.items():
        if is_matrix(name):
            kind = type_of(name, ftype)
            values = gguf.quants.dequantize(encode(values, kind), kind)
        out[name] = np.array(values, dtype=np.float32).reshape(state[name].shape)
    return out


def gguf_tensors(state, config):
    """Yields (GGUF name, float32 array, name) from a state. The last name decides the weight
    type; None keeps F32."""
    llama_rows = ARCHS[config.model_type] == "llama"
    for name, values in state.items():
        if name == "model.embed_tokens.weight":
            yield "token_embd.weight", values, name
        elif name == "model.norm.weight":
            yield "output_norm.weight", values, None
        elif name == "lm_head.weight":
            if not config.tie_word_embeddings:
                yield "output.weight", values, name
        else:
            layer, inner = name.removeprefix("model.layers.").split(".", 1)
            blk = f"blk.{layer}."
            if inner == "mlp.experts.gate_up_proj":
                half = values.shape[1] // 2
                yield blk + "ffn_gate_exps.weight", np.ascontiguousarray(values[:, :half]), name
                yield blk + "ffn_up_exps.weight", np.ascontiguousarray(values[:, half:]), name
            elif inner == "mlp.experts.down_proj":
                yield blk + "ffn_down_exps.weight", values, name
            else:
                module, kind = inner.rsplit(".", 1)
                if llama_rows and module.endswith("q_proj"):
                    values = common.permute_qk(values, config.num_attention_heads)
                elif llama_rows and module.endswith("k_proj"):
                    values = common.permute_qk(values, config.num_key_value_heads)
                elif module.endswith("shared_expert_gate"):
                    values = values.reshape(-1)
                yield f"{blk}{LAYER_NAMES[module]}.{kind}", values, name if is_matrix(name) else None


def head_dim_of(config):
    """Returns the explicit head_dim, for families that have one."""
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def llama3_divisors(config):
    """Returns the rope_freqs tensor of llama3 scaling, from its definition; None for plain RoPE."""
    rope = config.rope_parameters
    if rope["rope_type"] != "llama3":
        return None
    n_rot, factor = head_dim_of(config), rope["factor"]
    old = rope["original_max_position_embeddings"]
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    wavelen = 2 * np.pi * rope["rope_theta"] ** (np.arange(0, n_rot, 2) / n_rot)
    blend = np.clip((old / wavelen - low) / (high - low), 0.0, 1.0)
    return (1.0 / ((1.0 - blend) / factor + blend)).astype(np.float32)


def add_keys(writer, config, name):
    """Adds hyper-parameters, as converters of real checkpoints write them for each architecture."""
    arch, head_dim = ARCHS[config.model_type], head_dim_of(config)
    writer.add_name(name)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    if head_dim != config.hidden_size // config.num_attention_heads:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    experts = getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None)
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
    if arch in ("qwen2moe", "qwen3moe"):
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if arch == "qwen2moe":
        writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)


def add_tokenizer(writer, n_vocab, n_merges):
    """Byte-level BPE with ChatML. <|im_end|> ends a turn, and no token is added at the start."""
    tokens, types, merges = vocabulary(n_vocab, n_merges)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(tokens.index("<|endoftext|>"))
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_pad_token_id(tokens.index("<|endoftext|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def write_gguf(path, config, state, ftype, n_merges):
    """`state` has the weights before rounding; `ftype` is the type of the matrices."""
    writer = gguf.GGUFWriter(path, ARCHS[config.model_type])
    add_keys(writer, config, f"tiny {pathlib.Path(path).stem}")
    kinds = {"f32": "ALL_F32", "quants": "MOSTLY_Q4_K_M"}
    writer.add_file_type(
        int(getattr(gguf.LlamaFileType, kinds.get(ftype, "MOSTLY_" + ftype.upper()))))
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    add_tokenizer(writer, config.vocab_size, n_merges)
    for tensor, values, name in gguf_tensors(state, config):
        kind = type_of(name, ftype) if name else Q.F32
        if kind == Q.F32:
            writer.add_tensor(tensor, values)
        else:
            writer.add_tensor(tensor, encode(values, kind), raw_dtype=kind)
    divisors = llama3_divisors(config)
    if divisors is not None:
        writer.add_tensor("rope_freqs.weight", divisors)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
