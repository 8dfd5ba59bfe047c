#!/usr/bin/env python3
"""Compares the demo MoE in Tidepool with llama.cpp (needs tools/setup --peers).

    python3 tests/tools/check_demo_moe.py TIDEPOOL_BINARY

Makes the model, and compares these with llama.cpp's:
 - logits after every position of some texts. --exact is compared with the weights written out as float32.
   The default mode must not differ more from that than llama.cpp with the file as it is. (Both round
   activations to 8 bits. Where experts' scores are nearly equal, rounding selects another expert.)
 - perplexity over tests/golden/perplexity.txt, and the dense model's perplexity for comparison.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import gguf
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/golden"))
import check_with_llamacpp as peers  # noqa: E402
import make_perplexity  # noqa: E402

DENSE = ROOT / ".cache/models/SmolLM2-135M-Instruct.Q4_1.gguf"
EXACT_LIMIT = 1e-3  # of the mean |difference| of logits with a standard deviation of 6
DEFAULT_LIMIT = 1.1  # times llama.cpp's distance
PERPLEXITY_LIMIT = 0.03


def our_logits(binary, model, ids, flags, scratch):
    out = pathlib.Path(scratch) / "logits.npy"
    subprocess.run([binary, "logits", "--model", str(model), "--tokens", ",".join(map(str, ids)), "--all",
                    "--out", str(out), *flags], check=True, capture_output=True)
    return np.load(out)


def check_logits(binary, model, scratch):
    prompts = json.loads((ROOT / "tests/golden/smollm2/golden.json").read_text())["prompts"]
    as_float32 = pathlib.Path(scratch) / "f32.gguf"
    peers.write_as_f32(model, as_float32)
    ours = [our_logits(binary, model, prompt["ids"], ["--exact"], scratch) for prompt in prompts]
    away = lambda others: np.concatenate(
        [np.abs(truth - other).mean(axis=1) for truth, other in zip(ours, others)])
    exact = away(peers.llamacpp_logits(as_float32, prompts))
    default = away(our_logits(binary, model, prompt["ids"], [], scratch) for prompt in prompts).mean()
    theirs = away(peers.llamacpp_logits(model, prompts)).mean()
    print(f"logits after {len(exact)} positions: llama.cpp on float32 weights is {exact.mean():.1e} from "
          f"--exact (at most {exact.max():.1e}), on the file {theirs:.3f}, our default {default:.3f}")
    return exact.mean() <= EXACT_LIMIT and default <= DEFAULT_LIMIT * theirs


def check_perplexity(binary, model):
    good = True
    for name, path in (("dense", DENSE), ("moe", model)):
        theirs = make_perplexity.llamacpp_perplexity(path, gguf.GGMLQuantizationType.F16)["perplexity"]
        ours = json.loads(subprocess.run(
            [binary, "perplexity", "--model", str(path), "--file", str(make_perplexity.TEXT), "--json"],
            check=True, capture_output=True, text=True).stdout)["perplexity"]
        fine = abs(ours / theirs - 1) <= PERPLEXITY_LIMIT
        good &= fine
        print(f"perplexity, {name}: {ours:.2f}, llama.cpp's {theirs:.2f}: {'ok' if fine else 'FAR'}")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("binary")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        model = pathlib.Path(scratch) / "demo.gguf"
        subprocess.run([sys.executable, str(ROOT / "tools/demo_moe/make.py"), "--out", str(model)],
                       check=True)
        good = check_logits(args.binary, model, scratch)
        good &= check_perplexity(args.binary, model)
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
