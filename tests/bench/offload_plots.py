"""Plots of docs/offload.md: hit rates and step times against the memory for experts, for each policy.

    python3 tests/bench/offload_plots.py hits --tidepool BINARY --traces DIR [--names essay,visits] --out FILE.svg
    python3 tests/bench/offload_plots.py steps --tidepool BINARY --model MODEL.gguf ... --out FILE.svg [--data FILE.json]
    python3 tests/bench/offload_plots.py steps --data FILE.json --out FILE.svg

Needs matplotlib (tools/requirements-peers.txt). `hits` draws a panel for each trace of --names in DIR from
`tidepool replay --json`; DIR may be one that //tests/bench:make_traces has filled. `steps` draws a panel for each model:
the time per token of one sequence, by `tidepool bench --json` in a fresh process for each policy and share of the
experts, with bars from the least to the most of the repetitions. --data keeps what was measured as it comes, so that a
run that was stopped goes on where it was, and is drawn without measuring when no --model is given.
"""

import argparse
import json
import pathlib
import subprocess

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "tidepool"  # the same picture has the same bytes
import matplotlib.pyplot as plt  # noqa: E402

POLICIES = ["adaptive", "lru", "tide", "static"]
ORACLES = ["hindsight", "belady"]
STYLES = {"adaptive": ("#c0392b", "-"), "lru": ("#2471a3", "-"), "tide": ("#1e8449", "-"), "static": ("#7d6608", "-"),
          "hindsight": ("#888888", "--"), "belady": ("#222222", ":")}
SHARES = [6.25, 9, 12.5, 18, 25, 35, 50, 65, 75, 90, 100]


def output_of(command):
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def find_trace(folder, name):
    for suffix in (".jsonl", ".jsonl.zst"):
        if (folder / (name + suffix)).exists():
            return folder / (name + suffix)
    raise SystemExit(f"offload_plots: no {name}.jsonl or {name}.jsonl.zst in {folder}")


def style(axes, title, x_label):
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(x_label)
    axes.grid(True, color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)


def save(figure, path):
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    print(f"{path}: {path.stat().st_size} bytes")


def draw_hits(options):
    names = options.names.split(",")
    rows = (len(names) + 1) // 2
    figure, panels = plt.subplots(rows, 2, figsize=(9, 3.2 * rows), sharey=True, squeeze=False, layout="constrained")
    for i, name in enumerate(names):
        axes = panels[i // 2][i % 2]
        replay = output_of([options.tidepool, "replay", "--trace", find_trace(options.traces, name), "--json",
                            "--slots", ",".join(f"{share}%" for share in SHARES),
                            "--policy", ",".join(["adaptive", "lru", "tide"] + ORACLES)])
        for policy in ["adaptive", "lru", "tide"] + ORACLES:
            rates = [result["hit_rate"] for result in replay["results"] if result["policy"] == policy]
            axes.plot(SHARES, rates, STYLES[policy][1], color=STYLES[policy][0], label=policy, linewidth=1.6)
        shape = f"{replay['layers']} layers of {replay['experts']}, top {replay['top_k']}"
        style(axes, f"{name} ({shape})", "slots, % of all experts" if i // 2 == rows - 1 else "")
        axes.set_ylim(0, 1.02)
        if i % 2 == 0:
            axes.set_ylabel("hit rate")
    panels[0][0].legend(fontsize=8, loc="lower right")
    save(figure, options.out)


def measure_steps(options, model, points, keep):
    """Adds to `points` what they lack of the model, and calls keep() after each."""
    known = {(point["policy"], point["share"]) for point in points}
    for share in [float(share) for share in options.shares.split(",")]:
        for policy in POLICIES:
            if (policy, share) in known:
                continue
            bench = output_of([options.tidepool, "bench", "--model", model, "-p", "0", "-n", str(options.tokens),
                               "-r", str(options.repetitions), "-t", str(options.threads), "--offload-policy", policy,
                               "--expert-memory", f"{share:g}%", "--json"])
            test = bench["results"][0]
            speed, counted = test["tokens_per_s"], test["offload"]
            points.append({"policy": policy, "share": share,
                           "ms": [1e3 / speed["median"], 1e3 / speed["max"], 1e3 / speed["min"]],
                           "hit_rate": counted["hits"] / (counted["hits"] + counted["misses"])})
            print(pathlib.Path(model).stem, points[-1], flush=True)
            keep()


def draw_panel(axes, name, points):
    for policy in POLICIES:
        line = sorted((p for p in points if p["policy"] == policy), key=lambda p: p["share"])
        median, least, most = zip(*(p["ms"] for p in line))
        spread = [[m - l for m, l in zip(median, least)], [m - l for m, l in zip(most, median)]]
        axes.errorbar([p["share"] for p in line], median, yerr=spread, color=STYLES[policy][0], label=policy,
                      linewidth=1.6, capsize=3, elinewidth=0.8)
    style(axes, name, "--expert-memory, % of all experts")
    axes.set_ylim(0)


def draw_steps(options):
    data = {}
    if options.data and options.data.exists():
        data = json.loads(options.data.read_text())

    def keep():
        if options.data:
            options.data.write_text(json.dumps(data, indent=1) + "\n")

    for model in options.model or []:
        measure_steps(options, model, data.setdefault(pathlib.Path(model).stem, []), keep)
    if not any(data.values()):
        raise SystemExit("offload_plots: nothing measured; give --model, or --data with a file that holds points")
    figure, panels = plt.subplots(1, len(data), figsize=(4.8 * len(data), 3.6), squeeze=False, layout="constrained")
    for axes, (name, points) in zip(panels[0], data.items()):
        draw_panel(axes, name, points)
    panels[0][0].set_ylabel("ms per token")
    panels[0][0].legend(fontsize=8)
    save(figure, options.out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    hits = commands.add_parser("hits")
    hits.add_argument("--tidepool", required=True)
    hits.add_argument("--traces", required=True, type=pathlib.Path)
    hits.add_argument("--names", default="essay,throng,visits,round")
    hits.set_defaults(draw=draw_hits)
    steps = commands.add_parser("steps")
    steps.add_argument("--tidepool", default="tidepool")
    steps.add_argument("--model", nargs="+")
    steps.add_argument("--shares", default="12.5,25,50,75", help="of all experts; small models need more")
    steps.add_argument("--tokens", type=int, default=16)
    steps.add_argument("--threads", type=int, default=2)
    steps.add_argument("--repetitions", type=int, default=3)
    steps.add_argument("--data", type=pathlib.Path)
    steps.set_defaults(draw=draw_steps)
    for command in (hits, steps):
        command.add_argument("--out", required=True, type=pathlib.Path)
    options = parser.parse_args()
    options.draw(options)


if __name__ == "__main__":
    main()
