"""Makes the inputs in corpus/ of the fuzz targets for Hugging Face directories.

    python make_hf_corpus.py

Needs the Python standard library only; configurations come from tests/golden/hf.
"""

import json
import pathlib
import struct

HERE = pathlib.Path(__file__).resolve().parent
CORPUS = HERE / "corpus"
GOLDEN = HERE.parent / "golden" / "hf"
MARK = "\u2581"
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
WORDS = [MARK, "t", "h", "e", "s", "k", "y", MARK + "t", "he", MARK + "the", "sk", "sky"]
MERGES = [(MARK, "t"), ("h", "e"), (MARK + "t", "he"), ("s", "k"), ("sk", "y")]


def folder(target):
    path = CORPUS / target
    path.mkdir(parents=True, exist_ok=True)
    return path


def safetensors(shapes, dtype="BF16", metadata=True):
    """Returns a file with tensors of these shapes, which are all zeros."""
    header, at = {"__metadata__": {"format": "pt"}} if metadata else {}, 0
    for name, shape in shapes.items():
        packed = name.endswith(("_blocks", "_scales"))
        size = 1 if packed else 2 if dtype != "F32" else 4
        for length in shape:
            size *= length
        header[name] = {"dtype": "U8" if packed else dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(at)


def mixtral():
    """Returns a file that hf_safetensors_fuzz.cc accepts as a whole model."""
    layer = "model.layers.0."
    shapes = {"model.embed_tokens.weight": [3, 4], "model.norm.weight": [4],
              layer + "input_layernorm.weight": [4], layer + "post_attention_layernorm.weight": [4],
              layer + "self_attn.q_proj.weight": [8, 4], layer + "self_attn.k_proj.weight": [4, 4],
              layer + "self_attn.v_proj.weight": [4, 4], layer + "self_attn.o_proj.weight": [4, 8],
              layer + "block_sparse_moe.gate.weight": [2, 4]}
    for expert in range(2):
        for name in ("w1", "w2", "w3"):
            shapes[f"{layer}block_sparse_moe.experts.{expert}.{name}.weight"] = [4, 4]
    return shapes


def gpt_oss(mxfp4):
    """Returns a file that hf_safetensors_fuzz.cc accepts as a whole model of gpt-oss."""
    layer = "model.layers.0."
    shapes = {"model.embed_tokens.weight": [3, 32], "model.norm.weight": [32], layer + "self_attn.sinks": [2],
              layer + "input_layernorm.weight": [32], layer + "post_attention_layernorm.weight": [32],
              layer + "self_attn.q_proj.weight": [8, 32], layer + "self_attn.k_proj.weight": [4, 32],
              layer + "self_attn.v_proj.weight": [4, 32], layer + "self_attn.o_proj.weight": [32, 8],
              layer + "mlp.router.weight": [2, 32], layer + "mlp.router.bias": [2]}
    experts = layer + "mlp.experts."
    shapes |= {experts + "gate_up_proj_bias": [2, 64], experts + "down_proj_bias": [2, 32]}
    if not mxfp4:
        return shapes | {experts + "gate_up_proj": [2, 32, 64], experts + "down_proj": [2, 32, 32]}
    for name, rows in (("gate_up_proj", 64), ("down_proj", 32)):
        shapes |= {f"{experts}{name}_blocks": [2, rows, 1, 16], f"{experts}{name}_scales": [2, rows, 1]}
    return shapes


def deepseek():
    """Returns a file that hf_safetensors_fuzz.cc accepts as a whole model of DeepSeek-V3."""
    layer = "model.layers.0."
    shapes = {"model.embed_tokens.weight": [3, 4], "model.norm.weight": [4],
              layer + "input_layernorm.weight": [4], layer + "post_attention_layernorm.weight": [4],
              layer + "self_attn.q_proj.weight": [12, 4], layer + "self_attn.o_proj.weight": [4, 4],
              layer + "self_attn.kv_a_proj_with_mqa.weight": [7, 4], layer + "self_attn.kv_a_layernorm.weight": [3],
              layer + "self_attn.kv_b_proj.weight": [8, 3], layer + "mlp.gate.weight": [2, 4],
              layer + "mlp.gate.e_score_correction_bias": [2]}
    for expert in range(2):
        for name in ("gate_proj", "up_proj", "down_proj"):
            shapes[f"{layer}mlp.experts.{expert}.{name}.weight"] = [4, 4]
    return shapes


def qwen3_vl_moe():
    """Returns a file that hf_safetensors_fuzz.cc accepts as a whole model of Qwen3-VL-MoE in the
    published layout."""
    layer = "model.layers.0."
    return {"model.embed_tokens.weight": [3, 4], "model.norm.weight": [4],
            layer + "input_layernorm.weight": [4], layer + "post_attention_layernorm.weight": [4],
            layer + "self_attn.q_proj.weight": [8, 4], layer + "self_attn.k_proj.weight": [4, 4],
            layer + "self_attn.v_proj.weight": [4, 4], layer + "self_attn.o_proj.weight": [4, 8],
            layer + "self_attn.q_norm.weight": [4], layer + "self_attn.k_norm.weight": [4],
            layer + "mlp.gate.weight": [2, 4], layer + "mlp.experts.gate_up_proj": [2, 4, 6],
            layer + "mlp.experts.down_proj": [2, 3, 4]}


def delta_net(parts):
    """Returns a file that hf_safetensors_fuzz.cc accepts as a whole model with a gated delta net.
    `parts` has the rows of its projections by name."""
    layer = "model.layers.0."
    delta, mlp = layer + "linear_attn.", layer + "mlp."
    shapes = {"model.embed_tokens.weight": [3, 4], "model.norm.weight": [4],
              layer + "input_layernorm.weight": [4], layer + "post_attention_layernorm.weight": [4],
              delta + "A_log": [2], delta + "dt_bias": [2], delta + "norm.weight": [2],
              delta + "conv1d.weight": [8, 1, 2], delta + "out_proj.weight": [4, 4],
              mlp + "gate.weight": [2, 4], mlp + "shared_expert_gate.weight": [1, 4]}
    shapes |= {f"{delta}in_proj_{name}.weight": [rows, 4] for name, rows in parts.items()}
    for expert in ("experts.0", "experts.1", "shared_expert"):
        for name in ("gate_proj", "up_proj", "down_proj"):
            shapes[f"{mlp}{expert}.{name}.weight"] = [4, 4]
    return shapes


def short_convolution():
    """Returns a file that hf_safetensors_fuzz.cc accepts as a whole model of LFM2 with experts."""
    layer, ffn = "model.layers.0.", "model.layers.0.feed_forward."
    shapes = {"model.embed_tokens.weight": [3, 4], "model.embedding_norm.weight": [4],
              layer + "operator_norm.weight": [4], layer + "ffn_norm.weight": [4],
              layer + "conv.conv.weight": [4, 1, 2], layer + "conv.in_proj.weight": [12, 4],
              layer + "conv.out_proj.weight": [4, 4], ffn + "gate.weight": [2, 4], ffn + "expert_bias": [2]}
    for expert in range(2):
        shapes |= {f"{ffn}experts.{expert}.{name}.weight": [4, 4] for name in ("w1", "w2", "w3")}
    return shapes


def byte_level():
    text = {b: chr(b) for b in [*range(33, 127), *range(161, 173), *range(174, 256)]}
    spare = iter(range(256, 512))
    text |= {b: chr(next(spare)) for b in range(256) if b not in text}
    vocab = {text[b]: b for b in range(256)} | {"he": 256, "\u0120t": 257, "\u0120the": 258}
    return {"added_tokens": [{"id": 259, "content": "<|im_end|>", "special": True}],
            "normalizer": {"type": "NFC"},
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
            "post_processor": {"type": "ByteLevel"},
            "model": {"type": "BPE", "vocab": vocab,
                      "merges": ["h e", "\u0120 t", ["\u0120t", "he"]]}}


def metaspace(split):
    tokens = ["<unk>", "<s>", "</s>"] + BYTES + WORDS
    return {"added_tokens": [{"id": 1, "content": "<s>", "special": True}],
            "pre_tokenizer": {"type": "Metaspace", "prepend_scheme": "first", "split": split},
            "post_processor": {"type": "TemplateProcessing", "single": [
                {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A"}}]},
            "chat_template": [{"name": "default", "template": "x"}], "eos_token": {"content": "</s>"},
            "model": {"type": "BPE", "unk_token": "<unk>", "byte_fallback": True, "merges": MERGES,
                      "vocab": {token: i for i, token in enumerate(tokens)}}}


def varint(value):
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def field(number, payload):
    if isinstance(payload, int):
        return varint(number << 3) + varint(payload)
    if isinstance(payload, float):
        return varint(number << 3 | 5) + struct.pack("<f", payload)
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def sentencepiece(kind):
    pieces = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)]
    pieces += [(byte, 0.0, 6) for byte in BYTES] + [(w, -float(i), 1) for i, w in enumerate(WORDS)]
    out = b"".join(field(1, field(1, text.encode()) + field(2, score) + field(3, type_))
                   for text, score, type_ in pieces)
    trainer = field(3, kind) + field(40, 0) + field(41, 1) + field(42, 2) + field(43, (1 << 64) - 1)
    return out + field(2, trainer) + field(3, field(1, b"identity") + field(3, 1) + field(4, 0))


def main():
    for name in ("llama3_rope_bf16", "llama_yarn_f16", "mixtral_bf16", "qwen2_moe_bf16", "smollm3", "gemma3_vision",
                 "glm4_moe", "hunyuan_v1_moe", "gpt_oss_mxfp4", "deepseek_v2", "phi3_longrope_long", "qwen3_next",
                 "qwen3_5", "qwen3_5_moe", "qwen3_vl_moe", "lfm2_moe"):
        (folder("hf_config_fuzz") / name).write_bytes((GOLDEN / name / "config.json").read_bytes())
    (folder("hf_config_fuzz") / "generation").write_bytes(
        (GOLDEN / "qwen3_bf16" / "generation_config.json").read_bytes())
    target = folder("hf_safetensors_fuzz")
    (target / "whole").write_bytes(safetensors(mixtral()))
    (target / "mxfp4").write_bytes(safetensors(gpt_oss(True)))
    (target / "transposed").write_bytes(safetensors(gpt_oss(False)))
    (target / "transposed_halves").write_bytes(safetensors(qwen3_vl_moe()))
    (target / "mla").write_bytes(safetensors(deepseek()))
    (target / "delta_net_fused").write_bytes(safetensors(delta_net({"qkvz": 12, "ba": 4})))
    (target / "delta_net").write_bytes(safetensors(delta_net({"qkv": 8, "z": 4, "b": 2, "a": 2})))
    (target / "short_convolution").write_bytes(safetensors(short_convolution()))
    (target / "float").write_bytes(safetensors({"a": [2, 3], "b": [1]}, "F32", metadata=False))
    (target / "index").write_text(json.dumps({"metadata": {"total_size": 4}, "weight_map": {
        "a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}))
    target = folder("hf_tokenizer_fuzz")
    for name, tokenizer in (("byte_level", byte_level()), ("metaspace", metaspace(False)),
                            ("metaspace_split", metaspace(True))):
        (target / name).write_text(json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":")))
    (folder("hf_sentencepiece_fuzz") / "bpe").write_bytes(sentencepiece(2))
    (folder("hf_sentencepiece_fuzz") / "unigram").write_bytes(sentencepiece(1))


if __name__ == "__main__":
    main()
