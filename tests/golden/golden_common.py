"""Functions that the golden-data scripts share: reading GGUF weights, tokenizers, greedy runs,
writing files.

The reference ("truth") is always transformers in float32 with eager attention on one thread. Its
weights are those of a GGUF file, which the gguf package dequantises to float32.
"""

import argparse
import importlib.metadata
import json
import pathlib

import gguf
import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

PACKAGES = ("numpy", "torch", "transformers", "tokenizers", "gguf", "llama-cpp-python")


def make_parser(doc):
    """Returns an argument parser whose --help prints the script's docstring unchanged."""
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawTextHelpFormatter)


def setup_torch():
    """One thread and no autograd, so that a second run gives the same numbers."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)


def versions(names=PACKAGES):
    """{package: version} of the packages that produced the data."""
    return {name: importlib.metadata.version(name) for name in names}


def read_gguf(path):
    """Returns ({key: value}, {tensor name: float32 array in PyTorch shape})."""
    reader = gguf.GGUFReader(path)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    tensors = {}
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        shape = tuple(int(n) for n in reversed(tensor.shape))
        tensors[tensor.name] = np.array(values, dtype=np.float32).reshape(shape)
    return fields, tensors


def permute_qk(rows, n_heads):
    """Half-split RoPE rows (transformers) -> interleaved rows (GGUF arch llama)."""
    head_dim = rows.shape[0] // n_heads
    split = rows.reshape(n_heads, 2, head_dim // 2, *rows.shape[1:])
    return np.ascontiguousarray(split.swapaxes(1, 2)).reshape(rows.shape)


def unpermute_qk(rows, n_heads):
    """Returns the inverse of permute_qk."""
    head_dim = rows.shape[0] // n_heads
    split = rows.reshape(n_heads, head_dim // 2, 2, *rows.shape[1:])
    return np.ascontiguousarray(split.swapaxes(1, 2)).reshape(rows.shape)


def build_tokenizer(fields):
    """Builds a Hugging Face tokenizer from byte-level BPE metadata of a GGUF file (gpt-2 or
    smollm)."""
    tokens = fields["tokenizer.ggml.tokens"]
    types = fields["tokenizer.ggml.token_type"]
    merges = [tuple(line.split(" ", 1)) for line in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    pre = fields["tokenizer.ggml.pre"]
    if pre == "gpt-2":
        tokenizer.pre_tokenizer = byte_level
    elif pre == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
    else:
        raise SystemExit(f"unknown tokenizer.ggml.pre {pre!r}: expected gpt-2 or smollm")
    tokenizer.decoder = decoders.ByteLevel()
    control = int(gguf.TokenType.CONTROL)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False)
                                  for token, kind in zip(tokens, types) if kind == control])
    return tokenizer


def all_logits(model, ids):
    """float32 [len(ids), vocab]: logits after every position of one sequence, in one pass."""
    return model(torch.tensor([ids])).logits[0].numpy()


def greedy(model, ids, n_steps):
    """Greedy continuation: {ids, runner_up, margin} with one entry a step.

    margin is logit(best) - logit(second): below a test's tolerance the step is a near-tie, and the
    text after it is not comparable. End-of-sequence tokens do not stop the run.
    """
    out = {"ids": [], "runner_up": [], "margin": []}
    step = model(torch.tensor([ids]), use_cache=True)
    for _ in range(n_steps):
        top = torch.topk(step.logits[0, -1], 2)
        best, second = (int(i) for i in top.indices)
        out["ids"].append(best)
        out["runner_up"].append(second)
        out["margin"].append(round(float(top.values[0] - top.values[1]), 6))
        step = model(torch.tensor([[best]]), past_key_values=step.past_key_values, use_cache=True)
    return out


def save_npy(path, array):
    """Little-endian C-order .npy, version 1.0; refuses a file over 2 MB."""
    path = pathlib.Path(path)
    np.save(path, np.ascontiguousarray(array))
    if path.stat().st_size > 2_000_000:
        raise SystemExit(f"{path} is over 2 MB: shard it")


def save_json(path, data):
    """Stable, diff-friendly JSON: lists of numbers stay on one line."""
    text = json.dumps(data, indent=1, ensure_ascii=False)
    lines, joined = text.split("\n"), []
    for line in lines:
        bare = line.strip().rstrip(",")
        closes = bare == "]" and joined and _is_number_row(joined[-1])
        if _is_number(bare) and joined and (joined[-1].endswith("[") or _is_number_row(joined[-1])):
            gap = "" if joined[-1].endswith("[") else " "
            joined[-1] += gap + line.strip()
        elif closes:
            joined[-1] += line.strip()
        else:
            joined.append(line)
    pathlib.Path(path).write_text("\n".join(joined) + "\n", encoding="utf-8")


def _is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_number_row(line):
    head, _, tail = line.rpartition("[")
    return bool(head or line.startswith("[")) and all(
        _is_number(part) for part in tail.replace(",", " ").split()) and bool(tail.strip())
