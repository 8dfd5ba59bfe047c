#!/usr/bin/env python3
"""Loads synthetic mixtures of experts with llama.cpp and compares its logits with Tidepool's.

    python3 check_synthetic.py TIDEPOOL_BINARY MAKE_SYNTHETIC_BINARY

Routers that prefer some experts (--skew) and keep some from token to token (--persistence) have
special weights, which otherwise only our own engine reads. For each file this compares the logits
after each of 96 tokens. In float32, llama.cpp's logits must equal those of --exact. In Q8_0 they
must be close on average: llama.cpp rounds activations, so a near-tie may select another expert.
"""

import pathlib
import subprocess
import tempfile

import numpy as np

import check_with_llamacpp as peers
import golden_common as common

ROUTINGS = {"random": [], "skew": ["--skew", "0.5"],
            "skew and persistence": ["--skew", "0.5", "--persistence", "0.6"]}
# Largest root mean square difference of logits, relative to the logits' own root mean square.
LIMITS = {"F32": 1e-4, "Q8_0": 0.1}
TOKENS = [(37 * i * i + 11 * i + 5) % 300 for i in range(96)]


def run(*words):
    subprocess.run([str(word) for word in words], check=True, capture_output=True)


def rms(values):
    return float(np.sqrt(np.mean(np.asarray(values, np.float64) ** 2)))


def check(routing, kind, folder, args):
    path, npy = folder / "model.gguf", folder / "logits.npy"
    run(args.make_synthetic, "--moe", "tiny-moe", *ROUTINGS[routing], "--type", kind, "--force", "--out", path)
    run(args.tidepool, "logits", "--model", path, "--tokens", ",".join(map(str, TOKENS)), "--all", "--exact",
        "--out", npy)
    ours = np.load(npy)
    theirs, = peers.llamacpp_logits(path, [{"text": None, "ids": TOKENS}])
    apart = rms(ours - theirs) / rms(ours)
    good = apart <= LIMITS[kind]
    print(f"{routing:20} {kind:4} logits {apart:.2e} apart, limit {LIMITS[kind]:g}  {'ok' if good else 'FAR'}")
    return good


def main():
    parser = common.make_parser(__doc__)
    parser.add_argument("tidepool")
    parser.add_argument("make_synthetic")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        results = [check(routing, kind, pathlib.Path(scratch), args)
                   for routing in ROUTINGS for kind in LIMITS]
    raise SystemExit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
