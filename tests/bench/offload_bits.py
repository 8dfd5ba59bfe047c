"""Checks that a real model gives the same bits under any --expert-memory.

    python3 tests/bench/offload_bits.py MODEL.gguf [--tokens 2048] [--memory 4GiB,2GiB] [--tidepool BINARY]
  (a build of //service:tidepool first; builds nothing itself)

A prompt of --tokens random tokens goes through `tidepool logits --dump` for each memory budget, each time in a new process:
first in one pass, as in a server; then in passes of 512, with another policy, without prefetching, and with reader threads.
The outputs of every layer at every position and the last position's logits are compared byte by byte. At a difference the
script prints the name of the dump and exits with 1. Each dump takes (2 layers + 2) x tokens x hidden size x 4 bytes of
--scratch.
"""

import argparse
import filecmp
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
OTHERWISE = ["--chunk", "512", "--offload-policy", "lru", "--prefetch", "off", "--expert-reader", "threads"]


def dump(options, memory, flags, folder):
    tokens = random.Random(7)
    ids = ",".join(str(tokens.randrange(options.vocabulary)) for _ in range(options.tokens))
    start = time.perf_counter()
    subprocess.run([options.tidepool, "logits", "--model", options.model, "--tokens", ids, "--expert-memory", memory,
                    "--out", folder / "logits.npy", "--dump", folder, *flags], check=True)
    print(f"{memory} {' '.join(flags)}: {time.perf_counter() - start:.1f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--vocabulary", type=int, default=30000, help="token ids are below this")
    parser.add_argument("--memory", default="4GiB,2GiB", help="two or more budgets")
    parser.add_argument("--tidepool", default=str(ROOT / ".cache/bazel-bin/service/tidepool"))
    parser.add_argument("--scratch", help="folder for the dumps (default: the system's)")
    options = parser.parse_args()
    first, *others = options.memory.split(",")
    if not others:
        parser.error("--memory has one budget; two or more are compared")
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        expected, found = (pathlib.Path(scratch) / name for name in ("expected", "found"))
        dump(options, first, ["--chunk", str(options.tokens)], expected)
        files = sorted(path.name for path in expected.iterdir())
        for memory in others:
            shutil.rmtree(found, ignore_errors=True)
            dump(options, memory, OTHERWISE, found)
            _, differ, missing = filecmp.cmpfiles(expected, found, files, shallow=False)
            if differ or missing:
                sys.exit(f"offload_bits: {(differ + missing)[0]} differs between {first} and {memory}")
            print(f"{first} and {memory}: {len(files)} files of every layer and the logits are the same to the last bit")


if __name__ == "__main__":
    main()
