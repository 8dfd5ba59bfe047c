"""Prompt and generation speed beside llama.cpp, on one model file, in alternating pairs.

Usage: compare.py MODEL.gguf [--pairs 9] [--threads 2] [--prompt 512] [--generate 128] [--json]
  (tools/setup --peers first; builds nothing: give --bench if model_bench lies elsewhere)

Both sides run as fresh processes in turn, A B A B ..., so that a machine whose speed drifts moves
both. The table gives the median and the quartiles of each side in tokens per second, and those of the
ratio pair by pair.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def run(command):
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(result.stdout.strip().splitlines()[-1])


def spread(values):
    if len(values) == 1:
        return values * 3
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return [low, middle, high]


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--generate", type=int, default=128)
    parser.add_argument("--bench", default=str(ROOT / ".cache/bazel-bin/tests/bench/model_bench"))
    parser.add_argument("--python", default=str(ROOT / ".cache/venv/bin/python"))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()

    shape = ["--prompt", str(args.prompt), "--generate", str(args.generate),
             "--threads", str(args.threads)]
    ours = [args.bench, args.model] + shape
    peer = [args.python, str(HERE / "llama_peer.py"), args.model] + shape
    pairs = []
    for index in range(args.pairs):
        print(f"pair {index + 1} of {args.pairs}", file=sys.stderr)
        pairs.append((run(ours), run(peer)))

    report = {"machine": cpu_name(), "threads": args.threads, "model": pathlib.Path(args.model).name,
              "pairs": args.pairs, "results": []}
    for test in (f"pp{args.prompt}", f"tg{args.generate}"):
        report["results"].append({
            "test": test,
            "tidepool": spread([pair[0][test] for pair in pairs]),
            "llama.cpp": spread([pair[1][test] for pair in pairs]),
            "ratio": spread([pair[0][test] / pair[1][test] for pair in pairs]),
        })
    if args.json:
        print(json.dumps(report))
        return
    print(f"{report['machine']}, {args.threads} threads, {report['model']}, {args.pairs} pairs; "
          "tokens/s: median (quartiles)")
    for row in report["results"]:
        cells = [f"{name} {row[name][1]:.{digits}f} ({row[name][0]:.{digits}f}-{row[name][2]:.{digits}f})"
                 for name, digits in (("tidepool", 0), ("llama.cpp", 0), ("ratio", 2))]
        print(f"{row['test']:>6}  " + "   ".join(cells))


if __name__ == "__main__":
    main()
