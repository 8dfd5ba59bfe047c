"""Compares placement policies on routing traces: makes a table for docs/offload.md.

    python3 tests/bench/replay_table.py --tidepool BINARY --traces DIR... [--shares 12.5,25,50,75] [--json FILE]

For each trace in the folders DIR (*.jsonl, *.jsonl.zst) and each number of slots (a share of the experts),
`tidepool replay` runs adaptive, lru, belady and tide, the latter with every refresh interval from 1
to 32. Cells are hit rates. "tide" is the rate at its best interval; a server cannot know that
interval in advance. The last lines are adaptive's ratios to the better of lru and tide, and to
belady.
"""

import argparse
import json
import pathlib
import subprocess

INTERVALS = range(1, 33)


def replay(binary, trace, shares, policies, interval=1):
    slots = ",".join(f"{share}%" for share in shares)
    command = [binary, "replay", "--trace", trace, "--slots", slots, "--policy", policies,
               "--refresh-interval", str(interval), "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["results"]


def measure(binary, trace, shares):
    """Returns one row per share: the hit rates by policy."""
    rows = [{"trace": trace.name.split(".")[0], "share": share, "tide": 0.0} for share in shares]
    results = replay(binary, trace, shares, "adaptive,lru,belady")
    for i, result in enumerate(results):
        rows[i // 3].update({result["policy"]: result["hit_rate"], "slots": result["slots_total"]})
    for interval in INTERVALS:
        for row, result in zip(rows, replay(binary, trace, shares, "tide", interval)):
            if result["hit_rate"] > row["tide"]:
                row.update({"tide": result["hit_rate"], "interval": interval})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tidepool", required=True)
    parser.add_argument("--traces", required=True, nargs="+", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--shares", default="12.5,25,50,75")
    parser.add_argument("--json", type=pathlib.Path, help="also write the rows there")
    options = parser.parse_args()
    shares = [float(share) for share in options.shares.split(",")]
    traces = []
    for folder in options.traces:
        found = sorted(path for path in folder.iterdir() if path.name.endswith((".jsonl", ".jsonl.zst")))
        if not found:
            parser.error(f"no *.jsonl or *.jsonl.zst in {folder}")
        traces += found
    rows = [row for trace in traces for row in measure(options.tidepool, trace, shares)]
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")

    print("| trace | slots | lru | tide (interval) | adaptive | belady | adaptive / better of lru, tide |\n" + "|---" * 7 + "|")
    ratios, optimum = [], []
    for row in rows:
        ratios.append(row["adaptive"] / max(row["lru"], row["tide"]))
        optimum.append(row["adaptive"] / row["belady"])
        print(f"| {row['trace']} | {row['share']:g} % | {row['lru']:.3f} | {row['tide']:.3f} ({row.get('interval', '-')}) | "
              f"{row['adaptive']:.3f} | {row['belady']:.3f} | {ratios[-1]:.3f} |")
    print(f"\nadaptive against the better of lru and tide: mean {sum(ratios) / len(ratios):.4f}, least {min(ratios):.4f}; "
          f"against belady: mean {sum(optimum) / len(optimum):.4f}")


if __name__ == "__main__":
    main()
