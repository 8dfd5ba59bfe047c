"""Compares the speed with other engines on the same model files, in alternating rounds.

Usage: compare.py MODEL.gguf... [--rounds 9] [--threads 2] [--prompt 512] [--generate 128]
                  [--batch 1,8,32] [--peer-threads 1,2] [--llama-bench FILE]... [--json]
  (tools/setup --peers and a build of //service:tidepool first; builds nothing itself)

The peers are llama.cpp through llama-cpp-python, with flash attention "auto" and "on", and every
--llama-bench program (for example that of ik_llama.cpp; one on PATH is found). Each peer runs with every
thread count of --peer-threads (default: --threads). One round runs Tidepool and each peer in new processes,
so a slow drift of the machine's speed affects all of them. Every second round has the reverse order, so a
drift within a round favours no engine. For each test the table has median and quartiles, in tokens per
second, of Tidepool and of the peer with the best median, and of their ratio in each round.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
OURS = "tidepool"


def run(command):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if result.returncode != 0:
        raise SystemExit(f"compare: {command[0]} failed:\n{result.stderr.strip()}")
    return json.loads(result.stdout)


def tidepool_speeds(report):
    return {row["test"]: row["tokens_per_s"]["median"] for row in report["results"]}


def llama_bench_speeds(report):
    speeds = {}
    for row in report:
        name = f"pp{row['n_prompt']}" if row["n_prompt"] else f"tg{row['n_gen']}"
        speeds[name] = row["avg_ts"]
    return speeds


def make_sides(model, args):
    """Returns {name: function that returns {test: tokens per second}}, with Tidepool first."""
    python_shape = ["--prompt", args.prompt, "--generate", args.generate, "--batch", args.batch]
    bench_shape = ["-p", args.prompt, "-n", args.generate]
    ours = [args.tidepool, "bench", "--json", "-m", model, "-r", 1, "-t", args.threads, *bench_shape,
            "-b", args.batch]
    sides = {OURS: lambda: tidepool_speeds(run(ours))}
    for threads in args.peer_threads or [args.threads]:
        for flash in ("auto", "on"):
            peer = [args.python, HERE / "llama_peer.py", model, *python_shape, "--threads", threads,
                    "--flash-attn", flash]
            sides[f"llama.cpp, flash {flash}, {threads} threads"] = lambda peer=peer: run(peer)
        for binary in args.llama_bench:
            peer = [binary, "-m", model, "-t", threads, "-r", 1, "-o", "json", "-ngl", 0, *bench_shape]
            name = f"{pathlib.Path(binary).parent.name}/llama-bench, {threads} threads"
            sides[name] = lambda peer=peer: llama_bench_speeds(run(peer))
    return sides


def spread(values):
    """Returns the first quartile, the median and the third quartile."""
    if len(values) == 1:
        return values * 3
    return statistics.quantiles(values, n=4, method="inclusive")


def compare(model, args):
    sides = make_sides(model, args)
    rounds = []
    for index in range(args.rounds):
        print(f"{model}: round {index + 1} of {args.rounds}", file=sys.stderr)
        order = list(sides) if index % 2 == 0 else list(reversed(sides))
        rounds.append({name: sides[name]() for name in order})
    results = []
    for test in rounds[0][OURS]:
        speeds = {name: [entry[name][test] for entry in rounds]
                  for name in sides if test in rounds[0][name]}
        peers = [name for name in speeds if name != OURS]
        best = max(peers, key=lambda name: statistics.median(speeds[name]))
        ratios = [mine / other for mine, other in zip(speeds[OURS], speeds[best])]
        results.append({"test": test, "tidepool": spread(speeds[OURS]), "best_peer": best,
                        "peer": spread(speeds[best]), "ratio": spread(ratios),
                        "all_peers": {name: spread(speeds[name]) for name in peers}})
    return {"model": pathlib.Path(model).name, "results": results}


def cell(quartiles, digits):
    low, middle, high = (f"{value:.{digits}f}" for value in quartiles)
    return f"{middle} ({low}-{high})"


def print_table(report):
    print(f"{report['machine']}, {report['rounds']} rounds; tokens/s: median (quartiles)")
    for model in report["models"]:
        print(f"\n{model['model']}\n{'test':>10}  {'tidepool':24}{'best peer':24}{'ratio':20}which")
        for row in model["results"]:
            digits = 1 if row["peer"][1] < 100 else 0
            print(f"{row['test']:>10}  {cell(row['tidepool'], digits):24}"
                  f"{cell(row['peer'], digits):24}{cell(row['ratio'], 2):20}{row['best_peer']}")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", metavar="MODEL.gguf")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--peer-threads", type=lambda text: [int(n) for n in text.split(",")])
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--generate", type=int, default=128)
    parser.add_argument("--batch", default="1,8,32")
    parser.add_argument("--tidepool", default=ROOT / ".cache/bazel-bin/service/tidepool")
    parser.add_argument("--python", default=ROOT / ".cache/venv/bin/python")
    parser.add_argument("--llama-bench", action="append", default=[], metavar="FILE")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = shutil.which("llama-bench")
    if found and not args.llama_bench:
        args.llama_bench.append(found)
    return args


def main():
    args = parse_arguments()
    models = [compare(model, args) for model in args.models]
    machine = run([args.tidepool, "bench", "--json", "-m", args.models[0], "-p", 1, "-n", 0, "-r", 1,
                   "-t", args.threads])["machine"]
    report = {"machine": machine, "threads": args.threads, "rounds": args.rounds, "models": models}
    if args.json:
        print(json.dumps(report))
    else:
        print_table(report)


if __name__ == "__main__":
    main()
