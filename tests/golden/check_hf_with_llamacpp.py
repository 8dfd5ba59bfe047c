#!/usr/bin/env python3
"""Loads the files that `tidepool quantize DIRECTORY` writes with llama.cpp, and compares the
logits.

    python3 check_hf_with_llamacpp.py TIDEPOOL_BINARY [DIRECTORY ...] [--type TYPE ...]

DIRECTORY is a Hugging Face directory, by default each of tests/golden/hf. For each type of weights the
script writes a GGUF file and compares the logits of 40 tokens: llama.cpp's with a float32 KV cache and
without flash attention, and those of `tidepool logits --exact`. llama.cpp rounds activations if weights are
quantised or have 16 bits, and looks GELU up in a table of 16 bits. KNOWN lists what else it does differently.
The directories of tests/golden/hf have rows too short for blocks of 32 or more, so make others for the
quantised types: make_hf.py --set hidden_size=64 intermediate_size=64 --out DIRECTORY
"""

import argparse
import ctypes
import json
import pathlib
import subprocess
import tempfile

import llama_cpp
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
TOKENS = 40
# Limits of the root mean square difference of a token's logits, relative to the logits themselves.
# The median over the tokens is compared: if a rounding error changes the choice of an expert, all
# logits of some tokens change.
LIMITS = {"F32": 1e-3, "F16": 0.01, "BF16": 0.05, "Q8_0": 0.1, "Q4_0": 0.15}
# Directories that llama.cpp refuses or computes differently, and why. Published checkpoints of these
# families have no such values, except where noted.
BIAS = "llama.cpp has no bias of the attention's output in this family"
SCALE = "llama.cpp takes the scale of attention from head_dim, not from query_pre_attn_scalar"
HEAD = "llama.cpp requires an output head of its own in this family"
KNOWN = {
    "deepseek_v2": "llama.cpp scores a group of experts by its two best, not by its best (published: DeepSeek V2)",
    "deepseek_v2_lite": "llama.cpp allows queries without low rank only with 26 or 27 layers",
    # With rms_norm_eps 1e-6, and attn_q_b.weight divided by the square of this factor, llama.cpp
    # agrees to 1e-6.
    "deepseek_v3_plain_yarn": "llama.cpp multiplies all scores by the square of YaRN's attention factor, not "
                              "only the rotated part, and normalises low ranks with rms_norm_eps, not 1e-6 "
                              "(published: mscale and mscale_all_dim are equal, and rms_norm_eps is 1e-6)",
    "gemma2": SCALE, "gemma3_text": SCALE, "gemma3_vision": SCALE,
    "gpt_oss_bf16": HEAD, "qwen2_moe_bf16": HEAD,
    "mistral_window_bf16": "llama.cpp has no window in the architecture llama (published: Mistral 7B v0.1)",
    "olmoe": "llama.cpp requires as many KV heads as heads",
    "phi3": "llama.cpp has switched windows off in this family (published: Phi-3)",
    "phi3_longrope_short": "llama.cpp chooses the long factors by the size of its context, at least 256",
    "qwen3_next": "llama.cpp requires heads of equal size for keys and values in delta nets",
    "qwen3_vl": BIAS, "qwen3_vl_moe": BIAS, "qwen3_yarn": BIAS, "smollm3": BIAS,
    "qwen3_vl_moe_saved": "llama.cpp requires experts in every layer of this family",
}


class LlamaCpp:
    """Collects llama.cpp's log, so that a refusal can be shown."""

    def __init__(self):
        self.lines = []

        @llama_cpp.llama_log_callback
        def keep(level, text, user_data):
            self.lines.append(text.decode(errors="replace").strip())

        self._keep = keep
        llama_cpp.llama_log_set(keep, None)
        llama_cpp.llama_backend_init()

    def logits(self, path, ids):
        """Returns float32 [n, vocabulary], or None if llama.cpp does not load the file."""
        self.lines.clear()
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = 0
        model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        if not model:
            return None
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = 256
        params.n_threads = params.n_threads_batch = 1
        params.type_k = params.type_v = llama_cpp.GGML_TYPE_F32
        params.flash_attn_type = 0
        context = llama_cpp.llama_init_from_model(model, params)
        if not context:
            llama_cpp.llama_model_free(model)
            return None
        batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for index, token in enumerate(ids):
            batch.token[index], batch.pos[index] = token, index
            batch.n_seq_id[index], batch.seq_id[index][0], batch.logits[index] = 1, 0, 1
        done = llama_cpp.llama_decode(context, batch) == 0
        vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
        rows = ctypes.cast(llama_cpp.llama_get_logits(context), ctypes.POINTER(ctypes.c_float))
        values = np.ctypeslib.as_array(rows, (len(ids), vocabulary)).copy() if done else None
        llama_cpp.llama_batch_free(batch)
        llama_cpp.llama_free(context)
        llama_cpp.llama_model_free(model)
        return values

    def complaint(self):
        errors = [line for line in self.lines if "error" in line or "fail" in line]
        return errors[0] if errors else (self.lines or ["no message"])[-1]


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{words[1]}: {done.stderr.strip()}")
    return done.stdout


def distance(ours, theirs):
    """Returns the median over the tokens of the relative difference."""
    rows = np.sqrt(np.mean((ours - theirs).astype(np.float64) ** 2, axis=1))
    return float(np.median(rows) / np.sqrt(np.mean(ours.astype(np.float64) ** 2)))


def check(source, kind, folder, tidepool, peer):
    """Prints one line. Returns whether the logits agree."""
    path, npy = folder / "model.gguf", folder / "logits.npy"
    wrote = json.loads(run(tidepool, "quantize", source, path, "--type", kind, "--force", "--json"))
    if kind not in ("F32", "F16", "BF16") and kind not in wrote["types"]:
        return True  # no row has whole blocks
    ids = json.loads(source.with_suffix(".json").read_text(encoding="utf-8"))["ids"][:TOKENS]
    run(tidepool, "logits", "--model", path, "--tokens", ",".join(map(str, ids)), "--all", "--exact",
        "--out", npy)
    ours, theirs = np.load(npy), peer.logits(path, ids)
    label = f"{source.name:22} {kind:5}"
    if theirs is None:
        known = f" (as known: {KNOWN[source.name]})" if source.name in KNOWN else ""
        print(f"{label} NOT LOADED: {peer.complaint()}{known}")
        return bool(known)
    apart, largest = distance(ours, theirs), float(np.abs(ours - theirs).max())
    good = apart <= LIMITS[kind]
    verdict = "ok" if good else f"differs, as known: {KNOWN[source.name]}" if source.name in KNOWN else "FAR"
    print(f"{label} largest difference {largest:.1e}, relative {apart:.1e}, limit {LIMITS[kind]:g}  {verdict}")
    return good or source.name in KNOWN


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("tidepool")
    parser.add_argument("directories", nargs="*", type=pathlib.Path)
    parser.add_argument("--type", nargs="*", default=["F32", "F16", "Q8_0"], choices=LIMITS, dest="kinds")
    args = parser.parse_args()
    directories = args.directories or sorted(path.parent for path in (HERE / "hf").glob("*/config.json"))
    peer = LlamaCpp()
    with tempfile.TemporaryDirectory() as scratch:
        results = [check(source, kind, pathlib.Path(scratch), args.tidepool, peer)
                   for source in directories for kind in args.kinds]
    print(f"{sum(results)} of {len(results)} agree")
    raise SystemExit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
