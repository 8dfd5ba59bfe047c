#!/usr/bin/env python3
"""Makes tests/golden/text800: the truth in compact form, and llama.cpp's distance to it.

    python3 make_llamacpp.py MODEL.gguf [--out text800]      write the data
    python3 make_llamacpp.py MODEL.gguf --score LOGITS.npy   write nothing; print all four metrics
                                                             of float32 logits [n_tokens, vocab]

The truth is the reference of make_smollm2.py on the ids of text800.txt. README.md defines the
metrics; this script computes llama.cpp's from the same arrays that a test reads.
"""

import pathlib

import llama_cpp
import numpy as np

import golden_common as common
import make_smollm2

HERE = pathlib.Path(__file__).resolve().parent
N_COLUMNS = 512
TOP = 64
SEED = 800
ROWS_PER_SHARD = 400
N_BATCH = 512
TINY = 1e-12


def log_sum_exp(logits):
    """float64 [n]: log of the sum of exp over a whole row, computed relative to the row's
    maximum."""
    rows = logits.astype(np.float64)
    top = rows.max(axis=1)
    return top + np.log(np.exp(rows - top[:, None]).sum(axis=1))


def compact(truth):
    """Returns the committed form of the truth [n, vocab]: a sample of columns, the TOP largest
    logits, logsumexp."""
    vocab = truth.shape[1]
    columns = np.sort(np.random.default_rng(SEED).choice(vocab, N_COLUMNS, replace=False))
    top_ids = np.argsort(-truth, axis=1, kind="stable")[:, :TOP]
    return {
        "columns": columns.astype("<i4"),
        "sample": truth[:, columns].astype("<f4"),
        "top_ids": top_ids.astype("<i4"),
        "top_values": np.take_along_axis(truth, top_ids, 1).astype("<f4"),
        "logsumexp": log_sum_exp(truth).astype("<f8"),
    }


def sample_error(data, logits):
    """Mean over positions and sampled columns of |logit - truth|."""
    picked = logits[:, data["columns"]].astype(np.float64)
    return float(np.abs(picked - data["sample"]).mean())


def bucket_kl(data, logits):
    """Mean KL(truth || logits) over the truth's top TOP tokens plus one bucket for the rest."""
    log_p = data["top_values"].astype(np.float64) - data["logsumexp"][:, None]
    ours = np.take_along_axis(logits, data["top_ids"].astype(np.int64), 1).astype(np.float64)
    log_q = ours - log_sum_exp(logits)[:, None]
    p, q = np.exp(log_p), np.exp(log_q)
    rest_p = np.maximum(1.0 - p.sum(axis=1), TINY)
    rest_q = np.maximum(1.0 - q.sum(axis=1), TINY)
    per_position = (p * (log_p - log_q)).sum(axis=1) + rest_p * np.log(rest_p / rest_q)
    return float(per_position.mean())


def full_error(truth, logits):
    """Mean over positions and the whole vocabulary of |logit - truth|."""
    return float(np.mean([np.abs(a.astype(np.float64) - b).mean() for a, b in zip(logits, truth)]))


def full_kl(truth, logits):
    """Mean over positions of KL(truth || logits) over the whole vocabulary."""
    log_p_norm, log_q_norm = log_sum_exp(truth), log_sum_exp(logits)
    total = 0.0
    for row in range(len(truth)):
        log_p = truth[row].astype(np.float64) - log_p_norm[row]
        log_q = logits[row].astype(np.float64) - log_q_norm[row]
        total += float((np.exp(log_p) * (log_p - log_q)).sum())
    return total / len(truth)


def measure(data, truth, logits):
    """Returns the four metrics of README.md."""
    return {
        "sample_mean_abs_error": sample_error(data, logits),
        "bucket_mean_kl": bucket_kl(data, logits),
        "full_mean_abs_error": full_error(truth, logits),
        "full_mean_kl": full_kl(truth, logits),
    }


def run_llamacpp(path, ids, text, kv_cache="f16"):
    """(float32 logits [n, vocab], settings): defaults except for n_ctx, logits of all positions and
    the type of the KV cache; q8_0 needs flash attention."""
    flash = kv_cache != "f16"
    kv_type = {"f16": llama_cpp.GGML_TYPE_F16, "q8_0": llama_cpp.GGML_TYPE_Q8_0}[kv_cache]
    llama = llama_cpp.Llama(str(path), n_ctx=1024, n_batch=N_BATCH, logits_all=True, verbose=False,
                            flash_attn=flash, type_k=kv_type, type_v=kv_type)
    theirs = llama.tokenize(text.encode(), add_bos=False, special=False)
    if theirs != ids:
        raise SystemExit("llama.cpp and tokenizers disagree about the token ids of the text")
    llama.eval(ids)
    settings = {"n_ctx": 1024, "n_batch": N_BATCH, "kv_cache": kv_cache, "flash_attn": flash,
                "system": llama_cpp.llama_print_system_info().decode().strip(" |")}
    return np.array(llama.scores[: len(ids)], dtype=np.float32), settings


def write(out, model_name, ids, data, llamacpp, llamacpp_q8_0_kv):
    """Writes everything that a test reads. The sample is divided into shards of ROWS_PER_SHARD
    positions."""
    out.mkdir(parents=True, exist_ok=True)
    shards = []
    for first in range(0, len(ids), ROWS_PER_SHARD):
        shards.append(f"sample_{len(shards)}.npy")
        common.save_npy(out / shards[-1], data["sample"][first : first + ROWS_PER_SHARD])
    for name in ("columns", "top_ids", "top_values", "logsumexp"):
        common.save_npy(out / f"{name}.npy", data[name])
    common.save_json(out / "golden.json", {
        "model": model_name, "versions": common.versions(), "text": "text800.txt", "ids": ids,
        "sample": shards, "columns": "columns.npy", "top_ids": "top_ids.npy",
        "top_values": "top_values.npy", "logsumexp": "logsumexp.npy", "llamacpp": llamacpp,
        "llamacpp_q8_0_kv": llamacpp_q8_0_kv})


def main():
    parser = common.make_parser(__doc__)
    parser.add_argument("model", type=pathlib.Path, help="SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--out", default=HERE / "text800", type=pathlib.Path)
    parser.add_argument("--text", default=HERE / "text800.txt", type=pathlib.Path)
    parser.add_argument("--score", type=pathlib.Path, metavar="LOGITS.npy")
    args = parser.parse_args()
    common.setup_torch()
    text = args.text.read_text(encoding="utf-8")
    model, tokenizer = make_smollm2.load_reference(args.model)
    ids = tokenizer.encode(text).ids
    truth = common.all_logits(model, ids)
    data = compact(truth)
    if args.score:
        logits = np.load(args.score)
        if logits.shape != truth.shape:
            raise SystemExit(f"{args.score}: shape {logits.shape}, expected {truth.shape}")
        print(measure(data, truth, logits))
        return
    logits, settings = run_llamacpp(args.model, ids, text)
    llamacpp = measure(data, truth, logits) | {"settings": settings}
    logits, settings = run_llamacpp(args.model, ids, text, kv_cache="q8_0")
    quantised_kv = measure(data, truth, logits) | {"settings": settings}
    write(args.out, args.model.name, ids, data, llamacpp, quantised_kv)
    print(len(ids), "tokens;", llamacpp, "\nKV in q8_0:", quantised_kv)
    covered = np.exp(data["top_values"].astype(np.float64) - data["logsumexp"][:, None]).sum(axis=1)
    print("truth's mass in the top", TOP, ": mean", covered.mean(), "smallest", covered.min())


if __name__ == "__main__":
    main()
