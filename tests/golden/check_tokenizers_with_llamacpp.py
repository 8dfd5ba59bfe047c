#!/usr/bin/env python3
"""Compares how llama.cpp and Tidepool tokenise text, from the GGUF of a Hugging Face directory.

    python3 check_tokenizers_with_llamacpp.py TIDEPOOL_BINARY [--lines 200]

For the tokenizers of tests/golden/hf and each tokenizer.json of tests/golden/hf_tokenizers the script
makes a directory with a tiny model, converts it with `tidepool quantize`, and compares the ids of lines:
paragraphs of perplexity.txt, and lines of lines.bin that are text. Some tokenizers have rules for which
GGUF has no key that llama.cpp reads; MAY_DIFFER names them, and a share of lines that must be equal.
"""

import argparse
import json
import pathlib
import shutil
import struct
import subprocess
import tempfile

import llama_cpp
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
# {tokenizer: (minimum share of equal lines, reason)}
NFC = (0.9, "llama.cpp does not normalise to NFC")
SPACE = (0.7, "llama.cpp adds a space in front of every text, and cuts no words at spaces")
MAY_DIFFER = {name: NFC for name in (
    "llama_yarn_f16", "mistral_window_bf16", "mixtral_bf16", "qwen2_f16", "qwen2_moe_bf16", "qwen3_bf16",
    "qwen3_moe_bf16", "qwen2")}
MAY_DIFFER |= {name: SPACE for name in ("metaspace_first", "unigram", "unigram_nfkc")}
MAY_DIFFER |= {"metaspace_split": (0.2, SPACE[1]),
               "edges": (0.3, "llama.cpp does not know tokens that match with the space beside them")}


def golden_lines():
    """Returns the lines of tokenizers/lines.bin that are UTF-8."""
    data, at, lines = (HERE / "tokenizers" / "lines.bin").read_bytes(), 0, []
    while at < len(data):
        size = struct.unpack_from("<H", data, at)[0]
        line = data[at + 2:at + 2 + size]
        at += 2 + size
        try:
            lines.append(line.decode())
        except UnicodeDecodeError:
            continue
    return lines


def pick_lines(count):
    """Returns lines: half are ordinary text, and half are of any kind. None contains NUL, which a
    command line cannot have."""
    text = (HERE / "perplexity.txt").read_text(encoding="utf-8").replace("\n", " ")
    step = max(1, len(text) // (count // 2))
    plain = [text[at:at + step] for at in range(0, len(text), step)][:count // 2]
    others = [line for line in golden_lines() if line and "\0" not in line]
    return plain + others[:: len(others) // (count - len(plain))][:count - len(plain)]


def write_model(folder, tokenizer):
    """Writes a Llama of one layer with random weights. The embedding has a row for each token."""
    vocab = tokenizer["model"]["vocab"]
    size = max([len(vocab)] + [token["id"] + 1 for token in tokenizer.get("added_tokens", [])])
    rng = np.random.default_rng(1)
    shapes = {"model.embed_tokens.weight": (size, 32), "model.norm.weight": (32,)}
    layer = {"input_layernorm": (32,), "post_attention_layernorm": (32,)}
    layer |= {f"self_attn.{part}_proj": (32, 32) for part in "qkvo"}
    layer |= {f"mlp.{part}_proj": (32, 32) for part in ("gate", "up", "down")}
    shapes |= {f"model.layers.0.{name}.weight": shape for name, shape in layer.items()}
    header, data = {}, b""
    for name, shape in shapes.items():
        values = rng.normal(0, 0.1, shape).astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": size, "hidden_size": 32,
        "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
        "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
        "hidden_act": "silu", "bos_token_id": None, "eos_token_id": 2}))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")


def their_ids(vocabulary, line):
    data = line.encode()
    ids = (llama_cpp.llama_token * (len(data) + 16))()
    count = llama_cpp.llama_tokenize(vocabulary, data, len(data), ids, len(ids), False, False)
    return list(ids[:count])


def our_ids(tidepool, path, line):
    done = subprocess.run([tidepool, "tokenize", "--model", path, "--json"], input=line.encode(),
                          capture_output=True, check=True)
    return json.loads(done.stdout)["token_ids"]


def check(name, folder, lines, tidepool):
    """Prints one line. Returns whether enough lines have equal ids."""
    path = folder / "model.gguf"
    subprocess.run([tidepool, "quantize", folder, path, "--type", "F32", "--force"], check=True,
                   capture_output=True)
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = True
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
    if not model:
        print(f"{name:22} NOT LOADED")
        return False
    vocabulary = llama_cpp.llama_model_get_vocab(model)
    equal, first = 0, None
    for line in lines:
        ours, theirs = our_ids(tidepool, path, line), their_ids(vocabulary, line)
        equal += ours == theirs
        if ours != theirs and first is None:
            first = f"first other line {line[:40]!r}: {ours[:12]} here, {theirs[:12]} in llama.cpp"
    llama_cpp.llama_model_free(model)
    least, reason = MAY_DIFFER.get(name, (1.0, ""))
    good = equal >= least * len(lines)
    print(f"{name:22} {equal} of {len(lines)} lines equal  "
          + ("ok" if equal == len(lines) else f"{'ok, ' + reason if good else 'TOO FEW'}; {first}"))
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("tidepool")
    parser.add_argument("--lines", default=200, type=int)
    args = parser.parse_args()

    @llama_cpp.llama_log_callback
    def silent(level, text, user_data):
        pass

    llama_cpp.llama_log_set(silent, None)
    lines, good = pick_lines(args.lines), True
    for source in sorted((HERE / "hf").glob("*/tokenizer.json")):
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch) / source.parent.name
            shutil.copytree(source.parent, folder)
            good &= check(source.parent.name, folder, lines, args.tidepool)
    for source in sorted((HERE / "hf_tokenizers").glob("*.json")):
        if source.stem == "golden":
            continue
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            write_model(folder, json.loads(source.read_text(encoding="utf-8")))
            good &= check(source.stem, folder, lines, args.tidepool)
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
