"""Plots of docs/offload.md: hit rates and step times against the memory for experts, for each
policy.

    python3 tests/bench/offload_plots.py hits --tidepool BINARY --traces DIR [--names essay,visits] --out FILE.svg
    python3 tests/bench/offload_plots.py steps --tidepool BINARY --model MODEL.gguf ... --out FILE.svg [--data FILE.jsonl]
    python3 tests/bench/offload_plots.py steps --data FILE.jsonl --out FILE.svg

Needs matplotlib (tools/requirements-peers.txt), and zstd for `hits`. `hits` draws a panel for each
trace of --names in DIR with the results of `tidepool replay --json`. //tests/bench:make_traces can
make such a DIR. The profile of static is the first quarter of the trace; the replay includes that
quarter.

`steps` draws a panel for each model: the time per token of one sequence, measured with `tidepool
bench --json` in a new process for each policy, share of the experts and round. It shows medians,
with bars between the quartiles. Every second round has the reverse order. The profile of static is
a trace of other tokens, which is recorded first. --data saves each measurement at once, so a
stopped run can be continued. Without --model the saved measurements are drawn.

Time: `hits` takes a few seconds per trace. `steps` runs models x shares x 4 policies x rounds
processes, by default 144 for one model. Each process loads the model, fills the slots and decodes
--tokens twice. With 9 GB from a disk of 1.5 GB/s that is about 10 s per process and half an hour in
all. It prints the estimated time left.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

import matplotlib

from offload_runs import Measurements, Progress, note, quartiles, record_profile

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


def write_profile(trace, file):
    """Writes the first quarter of a trace's forwards."""
    command = ["zstd", "-dcq", trace] if trace.suffix == ".zst" else ["cat", trace]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:1 + (len(lines) - 1) // 4]))
    return file


def replay_hits(options, trace):
    with tempfile.TemporaryDirectory() as scratch:
        profile = write_profile(trace, pathlib.Path(scratch) / "profile.jsonl")
        return output_of([options.tidepool, "replay", "--trace", trace, "--json", "--profile", profile,
                          "--slots", ",".join(f"{share}%" for share in SHARES),
                          "--policy", ",".join(POLICIES + ORACLES)])


def draw_hits(options):
    names = options.names.split(",")
    rows = (len(names) + 1) // 2
    figure, panels = plt.subplots(rows, 2, figsize=(9, 3.2 * rows), sharey=True, squeeze=False, layout="constrained")
    for i, name in enumerate(names):
        axes = panels[i // 2][i % 2]
        replay = replay_hits(options, find_trace(options.traces, name))
        for policy in POLICIES + ORACLES:
            rates = [result["hit_rate"] for result in replay["results"] if result["policy"] == policy]
            axes.plot(SHARES, rates, STYLES[policy][1], color=STYLES[policy][0], label=policy, linewidth=1.6)
        shape = f"{replay['layers']} layers of {replay['experts']}, top {replay['top_k']}"
        style(axes, f"{name} ({shape})", "slots, % of all experts" if i // 2 == rows - 1 else "")
        axes.set_ylim(0, 1.02)
        if i % 2 == 0:
            axes.set_ylabel("hit rate")
    panels[0][0].legend(fontsize=8, loc="lower right")
    save(figure, options.out)


def measure_point(options, model, policy, share, profile):
    flags = ["--profile", profile] if policy == "static" else []
    bench = output_of([options.tidepool, "bench", "--model", model, "-p", "0", "-n", str(options.tokens), "-r", "1",
                       "-t", str(options.threads), "--offload-policy", policy, "--expert-memory", f"{share:g}%",
                       "--json", *flags])
    test = bench["results"][0]
    counted = test["offload"]
    return {"ms": 1e3 / test["tokens_per_s"]["median"],
            "hit_rate": counted["hits"] / (counted["hits"] + counted["misses"])}


def measure_steps(options, kept, scratch):
    """Measures what is missing in `kept` and adds it."""
    shares = [float(share) for share in options.shares.split(",")]
    runs = [(model, {"round": number, "model": pathlib.Path(model).stem, "share": share, "policy": policy})
            for number in range(options.rounds) for model in options.model for share in shares
            for policy in (POLICIES if number % 2 == 0 else reversed(POLICIES))]
    runs = [(model, point) for model, point in runs if not kept.find(**point)]
    profiles = {}
    for model in dict.fromkeys(model for model, _ in runs):
        note(f"recording a profile of {model}")
        # Models in different folders may have the same name.
        profiles[model] = record_profile(options.tidepool, model, options.threads,
                                         pathlib.Path(scratch) / f"profile{len(profiles)}.jsonl.zst")
    progress = Progress(len(runs))
    for model, point in runs:
        progress.step(f"round {point['round'] + 1}, {point['model']}, {point['share']:g} %, {point['policy']}")
        kept.add({**point, **measure_point(options, model, point["policy"], point["share"], profiles[model])})


def draw_panel(axes, name, points):
    for policy in POLICIES:
        shares = sorted({point["share"] for point in points if point["policy"] == policy})
        spreads = [quartiles([point["ms"] for point in points if (point["policy"], point["share"]) == (policy, share)])
                   for share in shares]
        if not spreads:
            continue  # not measured yet
        low, median, high = zip(*spreads)
        bars = [[m - l for m, l in zip(median, low)], [h - m for m, h in zip(median, high)]]
        axes.errorbar(shares, median, yerr=bars, color=STYLES[policy][0], label=policy, linewidth=1.6, capsize=3,
                      elinewidth=0.8)
    style(axes, name, "--expert-memory, % of all experts")
    axes.set_ylim(0)


def draw_steps(options):
    if options.model:
        kept = Measurements(options.data, {"models": options.model, "tokens": options.tokens,
                                           "threads": options.threads, "tidepool": options.tidepool})
        with tempfile.TemporaryDirectory() as scratch:
            measure_steps(options, kept, scratch)
    elif options.data:
        kept = Measurements.read(options.data)
    if not (options.model or options.data) or not kept.records:
        raise SystemExit("offload_plots: nothing measured; give --model, or --data with a file that holds points")
    names = list(dict.fromkeys(point["model"] for point in kept.records))
    figure, panels = plt.subplots(1, len(names), figsize=(4.8 * len(names), 3.6), squeeze=False, layout="constrained")
    for axes, name in zip(panels[0], names):
        draw_panel(axes, name, kept.find(model=name))
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
    steps.add_argument("--rounds", type=int, default=9)
    steps.add_argument("--data", type=pathlib.Path, help="JSON lines of all measurements")
    steps.set_defaults(draw=draw_steps)
    for command in (hits, steps):
        command.add_argument("--out", required=True, type=pathlib.Path)
    options = parser.parse_args()
    options.draw(options)


if __name__ == "__main__":
    main()
