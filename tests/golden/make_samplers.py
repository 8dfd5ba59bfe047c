#!/usr/bin/env python3
"""Makes tests/golden/samplers.json: the results of llama.cpp's and transformers' samplers for some
logits.

    python3 make_samplers.py

Every row has random logits, all different, which are multiples of 1 / SCALE. Parameters with which
rounding could decide are left out: MARGIN is the minimum distance from such a limit. For
top_n_sigma, typical_p and XTC, the file has the ids that remain. For typical_p, llama.cpp's sampler
and transformers' TypicalLogitsWarper must agree. XTC runs with probability 1. For DRY, the file has
the penalty of each token, with the tokenizer of tokenizers/bytes.gguf.
"""

import ctypes
import json
import pathlib

import llama_cpp
import numpy as np
import torch
from transformers.generation.logits_process import TypicalLogitsWarper

import golden_common as common

HERE = pathlib.Path(__file__).resolve().parent
SCALE = 1024
TOKENS = 300
MARGIN = 1e-3
EVERYTHING = 1 << 20  # llama.cpp's samplers have no -1 for "all tokens"
BREAKERS = ["\n", ":", "\"", "*"]


def make_rows():
    """Returns rows from flat to steep, and one with a few large logits above noise."""
    rng = np.random.default_rng(24)
    rows = []
    for spread in (0.3, 1, 2, 4, 8):
        row = np.round(rng.normal(0, spread, TOKENS) * SCALE).astype(int)
        rows.append(row)
    few = np.round(rng.normal(0, 1, TOKENS) * SCALE).astype(int)
    few[rng.choice(TOKENS, 6, replace=False)] += np.arange(6) * 256 + 5 * SCALE
    rows.append(few)
    for row in rows:  # all different
        while len(set(row)) < len(row):
            _, first = np.unique(row, return_index=True)
            others = np.setdiff1d(np.arange(len(row)), first)
            row[others] += rng.integers(1, 8, len(others))
    return rows


def apply(sampler, logits):
    """Returns the tokens that remain after a sampler: {id: logit}."""
    data = (llama_cpp.llama_token_data * len(logits))()
    for i, logit in enumerate(logits):
        data[i] = llama_cpp.llama_token_data(i, logit, 0)
    array = llama_cpp.llama_token_data_array(data, len(logits), -1, False)
    llama_cpp.llama_sampler_apply(sampler, ctypes.byref(array))
    left = {array.data[i].id: array.data[i].logit for i in range(array.size)}
    return {id: logit for id, logit in left.items() if logit != -np.inf}


def softmax(logits):
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def top_n_sigma(rows):
    for index, row in enumerate(rows):
        logits = row / SCALE
        for n in (0.25, 0.5, 1.0, 1.5, 2.5):
            if np.abs(logits - (logits.max() - n * logits.std())).min() < MARGIN:
                continue
            left = apply(llama_cpp.llama_sampler_init_top_n_sigma(n), logits)
            yield {"row": index, "n": n, "kept": sorted(left)}


def typical(rows):
    for index, row in enumerate(rows):
        logits = row / SCALE
        p = softmax(logits)
        distance = np.abs(-np.log(p) + (p * np.log(p)).sum())
        order = np.argsort(distance)
        sums = np.cumsum(p[order])
        for mass in (0.1, 0.25, 0.5, 0.75, 0.9, 0.97):
            last = int(np.searchsorted(sums, mass))
            if np.abs(sums - mass).min() < 1e-5 or np.diff(distance[order])[last] < 1e-5:
                continue
            ours = sorted(apply(llama_cpp.llama_sampler_init_typical(mass, 1), logits))
            scores = TypicalLogitsWarper(mass=mass)(None, torch.tensor(logits, dtype=torch.float32)[None])
            theirs = torch.isfinite(scores[0]).nonzero().flatten().tolist()
            assert ours == theirs, (index, mass, ours, theirs)
            yield {"row": index, "p": mass, "kept": ours}


def xtc(rows):
    for index, row in enumerate(rows):
        logits = row / SCALE
        p = softmax(logits)
        for threshold in (0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 0.6):
            if np.abs(p - threshold).min() < 1e-5:
                continue
            left = apply(llama_cpp.llama_sampler_init_xtc(1.0, threshold, 1, 1), logits)
            yield {"row": index, "threshold": threshold, "kept": sorted(left)}


def dry_texts(model):
    """Token sequences with repetitions of every length."""
    rng = np.random.default_rng(7)
    texts = [
        "The tide rises, the tide falls. The tide rises, the tide",
        "one two three four: one two three four: one two three",
        "a b a b a b a b a b a b a",
        "He said \"no\" and she said \"no\" and he said \"no\" and",
        "USER: hello there\nBOT: hello there\nUSER: hello there\nBOT: hello",
        "nothing is repeated here",
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "the end the end the end. The end the end the",
    ]
    sequences = [model.tokenize(text.encode(), add_bos=False, special=True) for text in texts]
    common_ids = sequences[0][:4] + model.tokenize(b"\n:", add_bos=False, special=True)
    for size in (40, 200):
        sequences.append([int(id) for id in rng.choice(common_ids, size)])
        sequences.append([int(id) for id in rng.choice(common_ids[:2], size)])
    return sequences


def dry(model):
    settings = [
        # multiplier, base, allowed_length, last_n, breakers
        (0.8, 1.75, 2, -1, BREAKERS),
        (1.0, 1.1, 1, -1, ["."]),
        (0.5, 2.0, 0, 20, BREAKERS),
        (2.0, 1.0, 3, 30, [" the tide", "USER:", "ab"]),
        (0.8, 1.75, 2, 12, ["hello there\nBOT", "e t", "tide rises, the", "xxxxxxx"]),
    ]
    vocab = llama_cpp.llama_model_get_vocab(model._model.model)
    for tokens in dry_texts(model):
        for multiplier, base, allowed, last_n, breakers in settings:
            texts = (ctypes.c_char_p * len(breakers))(*(text.encode() for text in breakers))
            sampler = llama_cpp.llama_sampler_init_dry(
                vocab, multiplier, base, allowed, EVERYTHING if last_n < 0 else last_n, texts, len(breakers))
            for token in tokens:
                llama_cpp.llama_sampler_accept(sampler, token)
            left = apply(sampler, np.zeros(model.n_vocab()))
            penalties = {str(id): round(-logit, 4) for id, logit in sorted(left.items()) if logit != 0}
            yield {"tokens": tokens, "multiplier": multiplier, "base": base, "allowed_length": allowed,
                   "penalty_last_n": last_n, "breakers": breakers, "penalties": penalties}


def main():
    common.make_parser(__doc__).parse_args()
    rows = make_rows()
    model = llama_cpp.Llama(str(HERE / "tokenizers" / "bytes.gguf"), vocab_only=True, verbose=False)
    golden = {
        "versions": common.versions(("numpy", "torch", "transformers")) | {"llama-cpp-python": llama_cpp.__version__},
        "scale": SCALE,
        "rows": [row.tolist() for row in rows],
        "top_n_sigma": list(top_n_sigma(rows)),
        "typical_p": list(typical(rows)),
        "xtc": list(xtc(rows)),
        "dry": list(dry(model)),
    }
    for name in ("top_n_sigma", "typical_p", "xtc", "dry"):
        print(f"{name}: {len(golden[name])} cases")
    lines = ",\n".join(
        f"{json.dumps(key)}: " + ("[\n" + ",\n".join(map(json.dumps, value)) + "\n]" if isinstance(value, list)
                                  else json.dumps(value)) for key, value in golden.items())
    (HERE / "samplers.json").write_text("{\n" + lines + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
