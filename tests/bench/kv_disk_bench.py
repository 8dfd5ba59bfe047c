"""Measures the time to the first token of sessions whose KV is no longer in memory, with and
without --kv-disk.

Usage: kv_disk_bench.py MODEL.gguf [--tokens 1500] [--sessions 4] [--turns 4] [--threads 2] [--json]

The KV memory has room for the prompt of only one session. So at each turn of a session, its KV is
no longer in memory. Two servers, with a disk and without, run in turn. The first turn of a session
is not counted.
"""

import argparse
import json
import random
import shutil
import statistics
import sys
import time

from serving_rig import harness

BLOCK = 32


def kv_bytes(model, tokens):
    """Returns the KV bytes of this number of tokens in F16."""
    shown = harness.run_tidepool("inspect", "--model", model, "--json")
    if shown.returncode != 0:
        raise SystemExit(shown.stderr.strip())
    return json.loads(shown.stdout)["memory"]["kv_bytes_per_token"]["f16"] * tokens


def first_token(client, ids):
    """Returns (seconds to the first token, number of tokens that were not computed)."""
    begun = time.perf_counter()
    answer = client.generate(ids=ids, max_tokens=1, timeout=600)
    return time.perf_counter() - begun, answer.usage.cached_tokens


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=1500)
    parser.add_argument("--sessions", type=int, default=4)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()

    memory = kv_bytes(args.model, args.tokens + 4 * BLOCK)
    flags = ["--kv-memory", f"{memory // 1024 + 1}KiB", "--context", args.tokens + BLOCK]
    folder = harness.scratch_folder() / "kv_disk_bench"
    draw = random.Random(1)
    prompts = [[draw.randrange(1000) for _ in range(args.tokens)] for _ in range(args.sessions)]
    sides = {"memory alone": [], "with a disk": ["--kv-disk", f"{2 * args.sessions * memory}B",
                                                 "--cache-dir", folder]}
    clients, servers, times = {}, [], {side: [] for side in sides}
    try:
        for side, more in sides.items():
            servers.append(harness.serve(*flags, *more, model=args.model, threads=args.threads))
            clients[side] = harness.Client(servers[-1])
        for turn in range(args.turns + 1):
            for prompt in prompts:
                for side, client in clients.items():
                    seconds, cached = first_token(client, prompt)
                    print(f"turn {turn}, {side}: {seconds:.3f} s, {cached} tokens not computed",
                          file=sys.stderr, flush=True)
                    if turn > 0:
                        times[side].append(seconds)
    finally:
        for server in servers:
            server.kill()
        shutil.rmtree(folder, ignore_errors=True)
    report = {side: statistics.quantiles(seconds, n=4) for side, seconds in times.items()}
    ratios = statistics.quantiles([alone / disk for alone, disk in zip(*times.values())], n=4)
    if args.json:
        print(json.dumps({"seconds": report, "times_sooner": ratios}))
        return
    for side, (low, median, high) in report.items():
        print(f"{side:14}{median:8.3f} s ({low:.3f} to {high:.3f}), {len(times[side])} turns")
    print(f"with a disk the first token comes {ratios[1]:.1f} times sooner "
          f"({ratios[0]:.1f} to {ratios[2]:.1f})")


if __name__ == "__main__":
    main()
