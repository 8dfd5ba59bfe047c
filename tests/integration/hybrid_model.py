"""Small random hybrids: every fourth layer has attention, and the others are gated delta nets. The
models have the tokenizer of harness.LLAMA, and write printable ASCII without end."""

import dataclasses

import gguf
import gguf_bytes
import harness
import numpy as np

INTERVAL = 4  # every fourth layer has attention
CONV = 4      # width of the convolutions
VOCAB = 300


@dataclasses.dataclass(frozen=True)
class Sizes:
    """`experts` is 0 for a dense model."""
    hidden: int = 64
    layers: int = 4
    heads: int = 4
    kv_heads: int = 1
    head_dim: int = 16
    k_heads: int = 2
    v_heads: int = 4
    state: int = 16  # the state of a V head has state * state numbers
    ffn: int = 96
    experts: int = 0
    context: int = 4096


def write(path, sizes=Sizes(), seed=1):
    """Writes a GGUF file."""
    arch = "qwen35moe" if sizes.experts else "qwen35"
    writer = gguf.GGUFWriter(path, arch)
    writer.add_name("hybrid")
    _add_sizes(writer, arch, sizes)
    _add_tokenizer(writer)
    for name, values in _tensors(sizes, np.random.default_rng(seed)).items():
        writer.add_tensor(name, np.asarray(values, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_sizes(writer, arch, sizes):
    writer.add_context_length(sizes.context)
    writer.add_embedding_length(sizes.hidden)
    writer.add_block_count(sizes.layers)
    writer.add_feed_forward_length(sizes.ffn)
    writer.add_head_count(sizes.heads)
    writer.add_head_count_kv(sizes.kv_heads)
    writer.add_key_length(sizes.head_dim)
    writer.add_value_length(sizes.head_dim)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(VOCAB)
    writer.add_rope_dimension_count(sizes.head_dim // 2)
    writer.add_rope_freq_base(10000.0)
    for key, value in (("ssm.conv_kernel", CONV), ("ssm.state_size", sizes.state),
                       ("ssm.group_count", sizes.k_heads), ("ssm.time_step_rank", sizes.v_heads),
                       ("ssm.inner_size", sizes.v_heads * sizes.state),
                       ("full_attention_interval", INTERVAL)):
        writer.add_uint32(f"{arch}.{key}", value)
    writer.add_array(f"{arch}.rope.dimension_sections", [2, 1, 1, 0])
    if sizes.experts:
        writer.add_expert_count(sizes.experts)
        writer.add_expert_used_count(2)
        writer.add_expert_feed_forward_length(sizes.ffn)
        writer.add_expert_shared_feed_forward_length(sizes.ffn)


def _add_tokenizer(writer):
    llama = gguf_bytes.read(harness.LLAMA.read_bytes())

    def strings(name):
        return [text.decode() for text in llama.strings(f"tokenizer.ggml.{name}")]

    tokens = strings("tokens")
    assert len(tokens) == VOCAB
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(np.frombuffer(llama.entries["tokenizer.ggml.token_type"][1][12:],
                                         np.int32).tolist())
    writer.add_token_merges(strings("merges"))
    for name in ("bos", "eos"):
        value = llama.entries[f"tokenizer.ggml.{name}_token_id"][1]
        getattr(writer, f"add_{name}_token_id")(int.from_bytes(value, "little"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(llama.entries["tokenizer.chat_template"][1][8:].decode())


def _tensors(sizes, dice):
    """Returns the tensors by name. No layer changes the first channel, which makes the text
    printable, as in harness.LLAMA."""

    def matrix(rows, cols, gain=1.3):
        return dice.normal(0.0, gain / np.sqrt(cols), (rows, cols))

    def norm(size):
        return dice.uniform(0.6, 1.7, size)

    llama = gguf_bytes.read(harness.LLAMA.read_bytes())
    bias = np.frombuffer(llama.tensor("output.weight").data, np.float32).reshape(VOCAB, -1)[:, 0]
    tensors = {"token_embd.weight": dice.normal(0.0, 1.0, (VOCAB, sizes.hidden)),
               "output.weight": matrix(VOCAB, sizes.hidden, 1.8),
               "output_norm.weight": norm(sizes.hidden)}
    tensors["token_embd.weight"][:, 0] = 6.0
    tensors["output_norm.weight"][0] = 1.0
    tensors["output.weight"][:, 0] = bias
    for layer in range(sizes.layers):
        part = _attention if layer % INTERVAL == INTERVAL - 1 else _delta_net
        block = {"attn_norm": norm(sizes.hidden), "post_attention_norm": norm(sizes.hidden),
                 **part(sizes, dice, matrix, norm), **_ffn(sizes, matrix)}
        for name in ("attn_norm", "post_attention_norm"):
            block[name][0] = 0.0
        for name in ("ssm_out", "attn_output", "ffn_down", "ffn_down_shexp"):
            if name in block:
                block[name][0] = 0.0
        if sizes.experts:
            block["ffn_down_exps"][:, 0] = 0.0
        for name, values in block.items():
            suffix = "" if name in ("ssm_a", "ssm_dt.bias") else ".weight"
            tensors[f"blk.{layer}.{name}{suffix}"] = values
    return tensors


def _delta_net(sizes, dice, matrix, norm):
    inner = sizes.v_heads * sizes.state
    channels = 2 * sizes.k_heads * sizes.state + inner
    return {"ssm_a": -np.exp(dice.uniform(-2.5, 0.5, sizes.v_heads)),
            "ssm_dt.bias": dice.normal(0.0, 0.5, sizes.v_heads),
            "ssm_conv1d": dice.normal(0.0, 0.7, (channels, CONV)),
            "ssm_norm": norm(sizes.state),
            "ssm_out": matrix(sizes.hidden, inner),
            "attn_qkv": matrix(channels, sizes.hidden),
            "attn_gate": matrix(inner, sizes.hidden),
            "ssm_beta": matrix(sizes.v_heads, sizes.hidden),
            "ssm_alpha": matrix(sizes.v_heads, sizes.hidden)}


def _attention(sizes, _, matrix, norm):
    size, kv_size = sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
    return {"attn_q": matrix(2 * size, sizes.hidden),  # q and the gate
            "attn_k": matrix(kv_size, sizes.hidden), "attn_v": matrix(kv_size, sizes.hidden),
            "attn_output": matrix(sizes.hidden, size),
            "attn_q_norm": norm(sizes.head_dim), "attn_k_norm": norm(sizes.head_dim)}


def _ffn(sizes, matrix):
    def three(suffix):
        return {f"ffn_gate{suffix}": matrix(sizes.ffn, sizes.hidden),
                f"ffn_up{suffix}": matrix(sizes.ffn, sizes.hidden),
                f"ffn_down{suffix}": matrix(sizes.hidden, sizes.ffn)}
    if not sizes.experts:
        return three("")
    experts = [three("_exps") for _ in range(sizes.experts)]
    return {"ffn_gate_inp": matrix(sizes.experts, sizes.hidden, 2.0),
            "ffn_gate_inp_shexp": matrix(1, sizes.hidden)[0],
            **{name: np.stack([one[name] for one in experts]) for name in experts[0]},
            **three("_shexp")}
